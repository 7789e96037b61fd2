"""Snippets of the pages run; those that need torch are tested beside it."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent
PAGES = [PACKAGE / "README.md", PACKAGE.parent.parent / "docs" / "python.md"]


def snippets():
    for page in PAGES:
        for match in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
            line = page.read_text()[: match.start()].count("\n") + 1
            yield pytest.param(match[1], id=f"{page.name}:{line}")


@pytest.mark.parametrize("snippet", list(snippets()))
def test_a_snippet_runs(snippet):
    if re.search(r"torch", snippet):
        pytest.skip("needs torch")
    exec(compile("import embla\nimport numpy as np\n" + snippet, "snippet", "exec"), {})
