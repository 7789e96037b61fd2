"""Wheels of deploy/build_wheels.sh, in the folder EMBLA_WHEELS: installed and used alone.

The wheel of this Python is installed into a virtual environment of its own and used with an empty
environment: no PYTHONPATH, no EMBLA_BIN_DIR, no programs in PATH.
"""

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

FOLDER = os.environ.get("EMBLA_WHEELS", "")
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
WHEELS = [
    path
    for path in sorted(Path(FOLDER).glob("embla-*.whl"))
    if FOLDER and (f"-{TAG}-" in path.name or ("abi3" in path.name and sys.version_info >= (3, 12)))
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WHEELS, reason=f"EMBLA_WHEELS has no wheel for {TAG}"),
]

# A wheel may take these from the system: glibc, the compiler's and zlib, which CPython needs.
SYSTEM = re.compile(
    r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|z))\.so(\.\d+)*"
)

SESSION = """
import sys, embla, numpy as np
assert "torch" not in sys.modules
with embla.LocalCluster() as cluster, cluster.connect() as client:
    spec = embla.TableSpec("t", 1000, 8, optimizer=embla.SGD(lr=1.0))
    cluster.admin.create_table(spec, "row_wise")
    before = client.read_rows("t", [1])
    client.update([embla.Gradient("t", [1], np.ones((1, 8), np.float32))])
    assert np.allclose(before - client.read_rows("t", [1]), 1)
print("trained")
"""


@pytest.fixture(scope="module", params=WHEELS, ids=lambda wheel: wheel.name)
def wheel(request):
    return request.param


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", wheel], check=True, timeout=300)
    return folder


def has_servers(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return "embla/bin/embla-shard" in archive.namelist()


def run(environment, *command):
    return subprocess.run(
        command, cwd=environment, env={"HOME": str(environment), "PATH": ""},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_its_size_is_within_bounds(wheel):
    assert wheel.stat().st_size <= (25 if has_servers(wheel) else 10) << 20


def test_it_asks_the_system_for_nothing_but_glibc(environment):
    (package,) = environment.glob("lib/python*/site-packages/embla")
    for file in [*package.glob("_native*.so"), *package.glob("bin/*")]:
        linked = run(environment, "/usr/bin/ldd", str(file)).stdout
        assert "not found" not in linked
        for line in linked.splitlines():
            name, _, path = line.strip().partition(" => ")
            own = str(environment) in path
            assert own or SYSTEM.fullmatch(Path(name.split()[0]).name), line


def test_it_imports_and_trains(environment, wheel):
    python = str(environment / "bin" / "python")
    assert run(environment, python, "-c", "import embla").returncode == 0
    ran = run(environment, python, "-c", SESSION)
    if has_servers(wheel):
        assert ran.stdout == "trained\n", ran.stderr
    else:
        assert "embla-coordinator is neither in the package" in ran.stderr
