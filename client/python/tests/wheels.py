"""Wheels of deploy/build_wheels.sh below the folder EMBLA_WHEELS, and what they are tried with."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"

# Wheels for this Python.
WHEELS = [
    path
    for path in sorted(Path(os.environ.get("EMBLA_WHEELS", "/nonexistent")).rglob("embla-*.whl"))
    if f"-{TAG}-" in path.name or ("abi3" in path.name and sys.version_info >= (3, 12))
]

# Trains over the cluster whose addresses it is given, or over one of its own.
PROGRAM = """
import contextlib
import sys
import numpy as np
import embla

assert "torch" not in sys.modules
with contextlib.ExitStack() as stack:
    if sys.argv[1:]:
        client = stack.enter_context(embla.connect(sys.argv[1]))
        admin = stack.enter_context(embla.Admin(sys.argv[2]))
    else:
        cluster = stack.enter_context(embla.LocalCluster(nodes=2, devices=2))
        client, admin = stack.enter_context(cluster.connect()), cluster.admin
    admin.create_table(embla.TableSpec("wheel", 1000, 8, optimizer=embla.SGD(lr=0.5)), "row_wise")
    stack.callback(admin.drop_table, "wheel")
    features = [embla.Lookup("wheel", ids=[1, 2, 999])]
    (before,) = client.lookup(features)
    for step in range(20):
        client.update([embla.Gradient("wheel", [1, 999], np.ones((2, 8), np.float32))], step=step)
    (after,) = client.lookup(features)
    np.testing.assert_allclose(before - after, np.outer([10, 0, 10], np.ones(8)), atol=1e-5)
print("trained")
"""


def has_servers(wheel: Path) -> bool:
    """Whether the server programs are in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return "embla/bin/embla-shard" in archive.namelist()


def kind_of(wheel: Path) -> str:
    """Name the wheel, for tests."""
    return "full" if has_servers(wheel) else "client only"
