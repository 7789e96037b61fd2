"""The package's promises as a package: types, import time, no torch, no leaks of symbols."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import embla
from embla import _native

PACKAGE = Path(embla.__file__).parent


def test_the_stub_is_that_of_the_module(tmp_path):
    pytest.importorskip("nanobind", reason="nanobind makes the stub")
    made = tmp_path / "_native.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-P", "-m", "embla._native"]
    subprocess.run([*command, "-o", str(made)], check=True, timeout=120)
    written = (PACKAGE / "_native.pyi").read_text()
    assert made.read_text() == written, f"run: {' '.join(command)} -o embla/_native.pyi"


def test_the_package_is_typed():
    pytest.importorskip("mypy", reason="mypy checks the types")
    assert (PACKAGE / "py.typed").exists()
    sources = [str(path) for path in PACKAGE.glob("*.py")]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *sources],
        capture_output=True, text=True, timeout=300, cwd=PACKAGE.parent,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout


def test_every_public_name_is_there_and_documented():
    for name in embla.__all__:
        value = getattr(embla, name)
        assert name.startswith("__") or value.__doc__, name
    assert ".".join(map(str, embla.version_info())) == embla.__version__
    with pytest.raises(AttributeError, match="nonsense"):
        embla.nonsense  # noqa: B018
    assert "LocalCluster" in dir(embla)


def run(code):
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return ran.stdout


def import_time(code, before=""):
    """Processor time in seconds, least of nine."""
    timed = f"""
import time
{before}
start = time.process_time()
{code}
print(time.process_time() - start)
"""
    return min(float(run(timed)) for _ in range(9))


@pytest.mark.parametrize(
    ("before", "code", "share"),
    [
        ("", "import embla", 0.2),
        ("import numpy", "import embla; embla.Client", 0.4),
    ],
    ids=["the package", "the client beside NumPy"],
)
def test_the_import_is_quick(before, code, share):
    """Beside the import of NumPy, on the same machine."""
    assert import_time(code, before) <= share * import_time("import numpy")


def test_the_import_alone_brings_no_numpy():
    assert run("import sys, embla; print('numpy' in sys.modules)") == "False\n"


def test_the_import_brings_no_torch():
    loaded = run("import sys, embla, embla.local_cluster; print('\\n'.join(sys.modules))").split()
    assert not [name for name in loaded if name.startswith(("torch", "pandas", "embla.torch"))]


def test_the_module_shows_its_entry_only():
    shown = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", _native.__file__],
        capture_output=True, text=True,
    )  # fmt: skip
    if shown.returncode:
        pytest.skip("nm is not there")
    names = [line.split()[0] for line in shown.stdout.splitlines()]
    assert [name for name in names if re.search("absl|grpc|protobuf|embla", name)] == []
    assert "PyInit__native" in names
