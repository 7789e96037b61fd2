"""Modules over tables with synchronous steps: each trainer a thread with a client of its own."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest
import torch

import embla
from embla.torch import EmbeddingBag, EmbeddingBagSet, Feature, rank_of_process

RANKS = 3


@pytest.fixture
def table(cluster):
    """A table of SGD with synchronous steps."""
    spec = embla.TableSpec("together", 1000, 8, optimizer=embla.SGD(lr=1.0), sync=True)
    cluster.admin.create_table(spec, "row_wise")
    yield spec.name
    cluster.admin.drop_table(spec.name)


@pytest.fixture
def clients(cluster):
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(cluster.connect(rank=rank, ranks=RANKS)) for rank in range(RANKS)
        ]


def in_threads(function, count=RANKS):
    """Call `function(rank)` for all ranks at once; raise the first error."""
    errors = []

    def run(rank):
        try:
            function(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_all_trainers_step_together(table, clients, mode):
    ids = [
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor([[1, 1]]),
        torch.empty(0, 2, dtype=torch.long),
    ]
    before = clients[0].read_rows(table, [1, 2, 3, 4])
    modules = [EmbeddingBag(client, table, update_mode=mode) for client in clients]

    def train(rank):
        for _ in range(4):
            modules[rank](ids[rank]).sum().backward()
        modules[rank].flush()

    in_threads(train)
    steps = before - clients[1].read_rows(table, [1, 2, 3, 4])
    np.testing.assert_allclose(steps[:, 0], [12, 4, 4, 4], atol=1e-5)
    assert [module.site.step for module in modules] == [4, 4, 4]


def test_a_rank_that_was_closed_joins_again(cluster):
    spec = embla.TableSpec(
        "patient", 100, 8, optimizer=embla.SGD(lr=1.0), sync=embla.Sync(step_timeout_ms=400)
    )
    cluster.admin.create_table(spec)
    ids = torch.tensor([[7]])
    with cluster.connect(rank=0, ranks=2) as first, cluster.connect(rank=1, ranks=2) as second:
        modules = [EmbeddingBag(client, spec.name) for client in (first, second)]
        in_threads(lambda rank: modules[rank](ids).sum().backward(), 2)
        modules[0](ids).sum().backward()  # Ends when rank 1 is closed.
        with pytest.raises(embla.FailedPreconditionError, match="join again"):
            modules[1](ids).sum().backward()
        over = threading.Event()

        def go_on(rank):
            while rank == 0 and not over.is_set():
                modules[0](ids).sum().backward()
            if rank == 1:
                for _ in range(3):
                    modules[1](ids).sum().backward()
                over.set()

        in_threads(go_on, 2)
        assert modules[1].site.step >= 5
    cluster.admin.drop_table(spec.name)


def test_a_trainer_that_starts_again_makes_no_step_twice(cluster, table):
    ids = torch.tensor([[7]])
    rank = {"trainer": "t", "rank": 0, "ranks": 1}
    with cluster.connect(**rank) as before:
        module = EmbeddingBag(before, table)
        for _ in range(2):
            module(ids).sum().backward()
        rows = before.read_rows(table, [7])
        with cluster.connect(**rank) as after:
            again = EmbeddingBag(after, table)
            again.site.step = 1  # The step of a checkpoint.
            again(ids).sum().backward()
            assert again.site.step == 2
            np.testing.assert_array_equal(after.read_rows(table, [7]), rows)
            again(ids).sum().backward()
            np.testing.assert_allclose(rows - after.read_rows(table, [7]), 1.0, atol=1e-5)


def test_two_modules_over_a_table_are_refused(cluster, table):
    with cluster.connect(rank=0, ranks=1) as client:
        modules = [EmbeddingBag(client, table) for _ in range(2)]
        modules[0](torch.tensor([[1]])).sum().backward()
        with pytest.raises(ValueError, match="give one module both features"):
            modules[1](torch.tensor([[1]])).sum().backward()


def test_tables_of_both_kinds_go_in_one_module(cluster, create_tables, table):
    create_tables()
    with cluster.connect(rank=0, ranks=1) as client:
        rows = EmbeddingBagSet(client, [Feature(table, "sum", 8), Feature("t8", "sum", 8)])
        before = [client.read_rows(name, [5]) for name in (table, "t8")]
        for _ in range(2):
            rows(torch.tensor([5, 5]), torch.tensor([1, 1])).sum().backward()
        for name, old, lr in zip((table, "t8"), before, (1.0, 0.1), strict=True):
            np.testing.assert_allclose(old - client.read_rows(name, [5]), 2 * lr, atol=1e-5)


def test_without_a_process_group_there_is_one_rank():
    assert rank_of_process() == {"rank": 0, "ranks": 1}
