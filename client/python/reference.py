"""Writes the API reference: HTML pages from the package's docstrings.

    pip install 'embla[torchrec,checkpoint,docs]'    (docs/python.md says which torch fits TorchRec)
    python client/python/reference.py FOLDER

FOLDER/index.html is the first page. A warning of the generator is an error.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import pdoc

MODULES = ("embla", "embla.torch", "embla.torchrec", "embla.checkpoint")


def write_reference(folder: Path) -> None:
    """Write the pages of all modules to ``folder``, which is made where it is absent."""
    for name in MODULES:
        module = importlib.import_module(name)
        for public in module.__all__:  # Some are imported when they are used; pdoc only looks.
            setattr(module, public, getattr(module, public))
    pdoc.render.configure(docformat="numpy", footer_text="Embla")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module="pdoc")
        pdoc.pdoc(*MODULES, output_directory=folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write_reference(Path(sys.argv[1]))
