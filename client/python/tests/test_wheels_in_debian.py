"""Wheels in an empty Debian: a root that debootstrap makes, with Python and nothing else.

Programs run in it with a process table of their own; its network is that of this machine.
"""

import os
import shutil
import subprocess
import sys
import urllib.request

import pytest
from wheels import PROGRAM, TAG, WHEELS, has_servers, kind_of

MIRROR = "http://deb.debian.org/debian"
RELEASE = "bookworm"
PYTHON = (3, 11)  # The release's own.

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WHEELS, reason=f"EMBLA_WHEELS has no wheel for {TAG}"),
    pytest.mark.skipif(
        sys.version_info[:2] != PYTHON, reason=f"the Python of {RELEASE} is {PYTHON}"
    ),
]


def run(command, **options):
    """Run a program; show the end of its output where it fails."""
    ran = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    assert ran.returncode == 0, f"{command[0]}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
    return ran.stdout


def inside(root, *command):
    """Run a program in the root, with an empty environment; whatever it leaves behind is killed."""
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    return run(
        [*unshare, f"--mount-proc={root / 'proc'}", "chroot", root, *command],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}, timeout=300,
    )  # fmt: skip


def check_that_a_root_can_be_made():
    if os.geteuid() != 0:
        pytest.skip("debootstrap and chroot need root")
    if shutil.which("debootstrap") is None:
        pytest.skip("there is no debootstrap: deploy/install_packages.sh --tests installs it")
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False).returncode:
        pytest.skip("this machine lets nobody make namespaces")
    try:
        urllib.request.urlopen(f"{MIRROR}/dists/{RELEASE}/Release", timeout=30).close()
    except OSError as error:
        pytest.skip(f"{MIRROR} cannot be reached: {error}")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A Debian with Python; NumPy, as the package index has it, lies in /packages."""
    check_that_a_root_can_be_made()
    folder = tmp_path_factory.mktemp("debian")
    run(["debootstrap", "--variant=minbase", "--include=python3-venv", RELEASE, folder, MIRROR],
        timeout=900)  # fmt: skip
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "download", "--only-binary=:all:", "--dest", folder / "packages", "numpy"],
        timeout=300)  # fmt: skip
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("wheel", WHEELS, ids=kind_of)
def test_it_installs_and_trains(root, wheel, cluster):
    name = "full" if has_servers(wheel) else "client"
    (root / "wheels" / name).mkdir(parents=True)
    shutil.copy(wheel, root / "wheels" / name)
    python = f"/{name}/bin/python"
    inside(root, "python3", "-m", "venv", f"/{name}")
    inside(root, python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links",
           "/packages", f"/wheels/{name}/{wheel.name}")  # fmt: skip
    # The wheel without servers uses a cluster outside.
    addresses = [] if has_servers(wheel) else [cluster.coordinator, cluster.admin_address]
    assert inside(root, python, "-c", PROGRAM, *addresses) == "trained\n"
