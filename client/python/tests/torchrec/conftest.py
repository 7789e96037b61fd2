"""One cluster for all tests; each test has tables and a client of its own."""

from __future__ import annotations

import warnings

import pytest

warnings.filterwarnings("ignore")
pytest.importorskip("torchrec", reason="torchrec is not installed")

import embla  # noqa: E402


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
    """What a collection is told of the service."""
    return {"client": client, "admin": cluster.admin}
