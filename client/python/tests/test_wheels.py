"""Wheels, installed and used alone.

Each is installed into a virtual environment of its own and used with an empty environment: no
PYTHONPATH, no EMBLA_BIN_DIR, no programs in PATH.
"""

import re
import resource
import subprocess
import time
import venv
from pathlib import Path

import pytest
from wheels import PROGRAM, TAG, WHEELS, has_servers, kind_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WHEELS, reason=f"EMBLA_WHEELS has no wheel for {TAG}"),
]

# A wheel may take these from the system: glibc, the compiler's and zlib, which CPython needs.
SYSTEM = re.compile(
    r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|z))\.so(\.\d+)*"
)


@pytest.fixture(scope="module", params=WHEELS, ids=kind_of)
def wheel(request):
    return request.param


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", wheel], check=True, timeout=300)
    return folder


def run(environment, *command):
    return subprocess.run(
        command, cwd=environment, env={"HOME": str(environment), "PATH": ""},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def run_python(environment, code):
    return run(environment, str(environment / "bin" / "python"), "-c", code)


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


@pytest.mark.parametrize(
    ("code", "limit"),
    [("import embla", 0.05), ("import embla; embla.Client", 0.4)],
    ids=["the package", "the client"],
)
def test_the_import_is_quick(environment, code, limit):
    """Processor time beside NumPy's import in the same process, least of nine."""
    timed = f"""
import time
start = time.process_time()
import numpy
numpy_took = time.process_time() - start
{code}
print((time.process_time() - start) / numpy_took - 1)
"""
    assert min(float(run_python(environment, timed).stdout) for _ in range(9)) <= limit


def processor_seconds():
    """Return those of the programs that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_model_is_trained_a_minute_after_the_installation_began(wheel, tmp_path, capsys):
    """The limit is processor time: a busy machine has other wall times."""
    if not has_servers(wheel):
        pytest.skip("this wheel has no servers to train with")
    venv.create(tmp_path, with_pip=True)
    began, before = time.monotonic(), processor_seconds()
    subprocess.run([tmp_path / "bin" / "pip", "install", "--quiet", wheel], check=True, timeout=300)
    assert run_python(tmp_path, PROGRAM).stdout == "trained\n"
    wall, used = time.monotonic() - began, processor_seconds() - before
    with capsys.disabled():
        print(f"\nfrom pip install to a trained model: {wall:.1f} s, {used:.1f} s of processors")
    assert used <= 60


def test_it_imports_and_trains(environment, wheel):
    ran = run_python(environment, PROGRAM)
    if has_servers(wheel):
        assert ran.stdout == "trained\n", ran.stderr
    else:
        assert "embla-coordinator is neither in the package" in ran.stderr
