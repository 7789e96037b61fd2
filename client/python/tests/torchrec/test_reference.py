"""The API reference, and what docstrings owe it."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[2]
MODULES = ("embla", "embla.torch", "embla.torchrec", "embla.checkpoint")
PUBLIC = [
    pytest.param(getattr(importlib.import_module(module), name), id=f"{module}.{name}")
    for module in MODULES
    for name in importlib.import_module(module).__all__
    if not name.startswith("__")
]
# Parameters that are arrays or tensors wherever they occur.
ARRAYS = {"ids", "lengths", "offsets", "weights", "per_sample_weights", "gradients", "values"}


def is_ours(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").startswith("embla")


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that classes of this package define."""
    for base in filter(is_ours, cls.__mro__):
        for name, value in vars(base).items():
            # Another library describes whatever it declares, but for forward passes.
            theirs = any(name in vars(other) for other in cls.__mro__ if not is_ours(other))
            is_api = callable(value) or isinstance(value, property | classmethod | staticmethod)
            if is_api and not name.startswith("_") and (name == "forward" or not theirs):
                yield name, getattr(cls, name)


def parameters(value: Any) -> list[str]:
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # Native ones have their signature in the docstring.
        return []
    return [p.name for p in found if p.name != "self" and p.kind not in (p.VAR_POSITIONAL,
                                                                        p.VAR_KEYWORD)]  # fmt: skip


def text_of(cls: type) -> str:
    """Return all that is said of a class: a parameter is described once, where it is first met."""
    docs = [cls.__doc__ or ""]
    for base in filter(is_ours, cls.__mro__):
        docs += [base.__doc__ or "", base.__init__.__doc__ or ""]
    return "\n".join(docs + [inspect.getdoc(value) or "" for _, value in members(cls)])


def assert_described(names: list[str], text: str) -> None:
    for name in names:
        assert re.search(rf"\b{name}\b", text), f"nothing is said of {name}"
    if ARRAYS & set(names):
        assert re.search(r"\[\w|shape", text), f"no shape: {ARRAYS & set(names)}"
    if "timeout" in names:
        assert "econds" in text, "timeout has no unit"


@pytest.mark.parametrize("value", PUBLIC)
def test_a_public_name_is_described(value):
    if not callable(value):
        return  # Names of types.
    assert value.__doc__, "no docstring"
    if not inspect.isclass(value):
        assert_described(parameters(value), value.__doc__)
        return
    text = text_of(value)
    if is_ours(value.__init__) and not issubclass(value, Exception):
        assert_described(parameters(value), text)
    for name, member in members(value):
        assert inspect.getdoc(member), f"{name} has no docstring"
        if callable(member):
            assert_described(parameters(member), text)


@pytest.mark.parametrize(
    "name",
    ["embla.Client", "embla.Table", "embla.Admin", "embla.LocalCluster", "embla.torch.Site",
     "embla.torch.EmbeddingBag", "embla.torchrec.RemoteCollection", "embla.checkpoint.load"],
)  # fmt: skip
def test_whoever_calls_the_service_says_what_errors_there_are(name):
    module, _, public = name.rpartition(".")
    value = getattr(importlib.import_module(module), public)
    text = text_of(value) if inspect.isclass(value) else value.__doc__
    assert re.search(r"\bRaises?\b|Error\b", text)


def test_the_reference_is_made_without_warnings(tmp_path):
    pytest.importorskip("pdoc", reason="pdoc makes the reference")
    ran = subprocess.run(
        [sys.executable, str(PACKAGE / "reference.py"), str(tmp_path / "reference")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    for module in MODULES:
        page = (tmp_path / "reference" / f"{module.replace('.', '/')}.html").read_text()
        for name in importlib.import_module(module).__all__:
            assert f'id="{name}"' in page, f"{module}.{name}"
