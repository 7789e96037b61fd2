"""Fixtures of all tests: one cluster per session, tables and clients of their own."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import embla


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def cluster():
    """Two shard servers of two devices."""
    with embla.LocalCluster(nodes=2, devices=2) as running:
        yield running


@pytest.fixture
def client(cluster):
    with cluster.connect() as connected:
        yield connected


_numbers = itertools.count()


@pytest.fixture
def make_table(cluster):
    """Create tables that are dropped after the test; returns their names."""
    names = []

    def make(rows=1000, dim=8, sharding="row_wise", **spec):
        spec.setdefault("optimizer", embla.SGD(lr=1.0))
        name = f"t{next(_numbers)}"
        cluster.admin.create_table(embla.TableSpec(name, rows, dim, **spec), sharding)
        names.append(name)
        return name

    yield make
    for name in names:
        cluster.admin.drop_table(name)


@pytest.fixture(scope="session")
def await_for():
    """Wait until a condition holds, or fail after a limit."""

    def wait(condition, limit, what):
        deadline = time.monotonic() + limit
        while not condition():
            assert time.monotonic() < deadline, f"not within {limit} s: {what}"
            time.sleep(0.005)

    return wait


@pytest.fixture
def rng():
    return np.random.default_rng(20261122)
