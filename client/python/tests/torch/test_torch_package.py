"""The promises of embla.torch and embla.torchrec as packages: types, import time, messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import embla

PACKAGE = Path(embla.__file__).parent


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_whole_package_is_typed():
    pytest.importorskip("mypy", reason="mypy checks the types")
    pytest.importorskip("torchrec.modules", reason="types of TorchRec are needed")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict"],
        capture_output=True, text=True, timeout=600, cwd=PACKAGE.parent, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_the_import_is_quick_beside_torchs():
    """Processor time in seconds, least of three."""
    timed = """
import time
import torch
start = time.process_time()
import embla.torch
print(time.process_time() - start)
"""
    assert min(float(run(timed)) for _ in range(3)) <= 0.15


def test_an_import_without_torchrec_says_what_to_install():
    message = run("""
import sys
sys.modules["torchrec"] = None
try:
    import embla.torchrec
except ImportError as error:
    print(error)
""")
    assert "pip install torch==2.14.1 fbgemm-gpu-cpu==1.9.0 tensordict" in message
    assert "pip install --no-deps torchrec==1.9.2" in message
