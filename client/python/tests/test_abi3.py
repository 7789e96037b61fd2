"""The wheel for Python 3.12 and later: its module keeps to the limited API, and serves them all."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from wheels import PROGRAM

WHEELS = sorted(Path(os.environ.get("EMBLA_WHEELS", "/nonexistent")).rglob("embla-*abi3*.whl"))
PYTHONS = [path for path in os.environ.get("EMBLA_NEWER_PYTHONS", "").split(":") if path]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not WHEELS, reason="EMBLA_WHEELS has no abi3 wheel: Python 3.12 or later builds one"
    ),
]


def test_the_module_keeps_to_the_limited_api(tmp_path):
    venv.create(tmp_path, with_pip=True)
    pip = [tmp_path / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "abi3audit"], check=True, timeout=300)
    for wheel in WHEELS:
        audit = subprocess.run(
            [tmp_path / "bin" / "abi3audit", "--strict", "--report", wheel],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert audit.returncode == 0, audit.stdout + audit.stderr


@pytest.mark.parametrize("python", PYTHONS or [sys.executable])
def test_it_imports_and_trains(python, cluster, tmp_path):
    environment = {"HOME": str(tmp_path), "PATH": ""}
    subprocess.run([python, "-m", "venv", tmp_path], check=True, timeout=300)
    pip = [tmp_path / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, WHEELS[0]], check=True, timeout=300)
    trained = subprocess.run(
        [tmp_path / "bin" / "python", "-c", PROGRAM, cluster.coordinator, cluster.admin_address],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert trained.stdout == "trained\n", trained.stderr
