"""Snippets of the page on Python and of the first page that need torch run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
SNIPPETS = [
    snippet
    for page in (ROOT / "README.md", ROOT / "docs" / "python.md")
    for snippet in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
]


@pytest.mark.parametrize("snippet", [s for s in SNIPPETS if "torch" in s])
def test_a_snippet_runs(snippet):
    exec(compile("import embla\nimport numpy as np\n" + snippet, "snippet", "exec"), {})
