"""One cluster for all tests; each test has tables and a client of its own."""

from __future__ import annotations

import warnings

import pytest

import embla

# A submodule: this folder itself would do as a package torchrec.
try:
    import torchrec.modules  # noqa: F401
except ImportError:
    warnings.warn("torchrec is not installed: its tests are left out", stacklevel=1)
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def cluster():
    with embla.LocalCluster(nodes=2, devices=2) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    for table in cluster.admin.plan()["tables"]:
        cluster.admin.drop_table(table["spec"]["name"])
    with cluster.connect() as client:
        yield client


@pytest.fixture
def service(cluster, client):
    """The arguments that connect a collection to the service."""
    return {"client": client, "admin": cluster.admin}
