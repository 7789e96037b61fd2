"""Snippets of the page on Python that need torch run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[4] / "docs" / "python.md"
SNIPPETS = [s for s in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)]


@pytest.mark.parametrize("snippet", [s for s in SNIPPETS if "torch" in s])
def test_a_snippet_runs(snippet):
    exec(compile("import embla\nimport numpy as np\n" + snippet, "snippet", "exec"), {})
