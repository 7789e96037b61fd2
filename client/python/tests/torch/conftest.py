"""One cluster for all tests; each test has two new tables and a client of its own."""

from __future__ import annotations

import warnings

import pytest
from recording import RecordingClient

import embla

# A submodule: this folder itself would do as a package torch.
try:
    import torch.nn  # noqa: F401
except ImportError:
    warnings.warn("torch is not installed: the tests of embla.torch are left out", stacklevel=1)
    collect_ignore_glob = ["test_*.py"]

TABLES = {"t8": 8, "t16": 16}


@pytest.fixture(scope="session")
def cluster():
    with embla.LocalCluster(nodes=2, devices=2) as cluster:
        yield cluster


@pytest.fixture
def create_tables(cluster):
    """Creates the tables anew: their rows are the same each time."""

    def create() -> None:
        existing = {table["spec"]["name"] for table in cluster.admin.plan()["tables"]}
        for name, dim in TABLES.items():
            if name in existing:
                cluster.admin.drop_table(name)
            spec = embla.TableSpec(
                name, 1000, dim, optimizer=embla.SGD(lr=0.1), init=embla.Uniform(-1.0, 1.0)
            )
            cluster.admin.create_table(spec, "row_wise")

    return create


@pytest.fixture
def client(cluster, create_tables):
    create_tables()
    with cluster.connect() as client:
        yield RecordingClient(client)
