"""Tables with synchronous steps: ranks, joining, contributions."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

import embla

RANKS = 2


@pytest.fixture
def ranks(cluster, request):
    """Clients of all ranks: of two, or as many as the test's parameter says."""
    count = getattr(request, "param", RANKS)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(cluster.connect(rank=rank, ranks=count)) for rank in range(count)
        ]


def in_threads(function, arguments):
    """Call `function` for each argument at once; return the results, raise the first error."""
    results = [None] * len(arguments)
    errors = []

    def run(position):
        try:
            results[position] = function(arguments[position])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def test_a_step_is_the_sum_of_what_all_ranks_contribute(ranks, make_table):
    table = make_table(dim=4, sync=True)
    assert in_threads(lambda client: client.join_steps([table]), ranks) == [[0], [0]]
    ids = [[3, 5, 3], [5, 990]]
    before = ranks[0].read_rows(table, [3, 5, 990, 7])

    def train(rank):
        for step in range(3):
            gradients = np.full((len(ids[rank]), 4), 0.25, np.float32)
            ranks[rank].update([embla.Gradient(table, ids[rank], gradients)], step=step)

    in_threads(train, range(RANKS))
    after = ranks[1].read_rows(table, [3, 5, 990, 7])
    steps = 3 * np.array([2, 2, 1, 0], np.float32)[:, None] * 0.25
    np.testing.assert_allclose(before - after, np.broadcast_to(steps, (4, 4)), atol=1e-6)


def bags(rng, rows):
    """Ids of eight bags and their lengths; ids repeat, and bags may be empty."""
    lengths = rng.integers(0, 5, 8).astype(np.uint32)
    return rng.integers(0, rows, int(lengths.sum())), lengths


@pytest.mark.parametrize(
    "optimizer",
    [
        embla.SGD(lr=0.05),
        embla.Adagrad(lr=0.05),
        embla.RowwiseAdagrad(lr=0.05),
        embla.Adam(lr=0.01),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
@pytest.mark.parametrize("kind", ["whole numbers", "fractions"])
@pytest.mark.parametrize("ranks", [1, 2, 4], indirect=True, ids="{} ranks".format)
def test_ranks_equal_one_trainer_on_the_joined_batch(
    ranks, client, make_table, rng, optimizer, kind
):
    """Sums of small whole numbers are exact in any order: then every bit is the same."""
    rows, dim = 50, 8
    together, alone = (
        make_table(rows=rows, dim=dim, optimizer=optimizer, seed=7, sync=sync)
        for sync in (True, False)
    )
    in_threads(lambda rank: rank.join_steps([together]), ranks)
    for step in range(20):
        batches = [bags(rng, rows) for _ in range(len(ranks))]
        gradients = [
            rng.integers(-3, 4, (8, dim)).astype(np.float32)
            if kind == "whole numbers"
            else rng.normal(size=(8, dim)).astype(np.float32)
            for _ in range(len(ranks))
        ]

        def contribute(rank, step=step, batches=batches, gradients=gradients):
            ids, lengths = batches[rank]
            feature = embla.Gradient(together, ids, gradients[rank], lengths, pooling="sum")
            ranks[rank].update([feature], step=step)

        in_threads(contribute, range(len(ranks)))
        ids, lengths = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        joined = embla.Gradient(alone, ids, np.concatenate(gradients), lengths, pooling="sum")
        client.update([joined], step=step)

    for read in (client.read_rows, client.read_state):
        got, wanted = (read(table, np.arange(rows)) for table in (together, alone))
        if kind == "whole numbers":
            np.testing.assert_array_equal(got.view(np.uint32), wanted.view(np.uint32))
        elif read == client.read_rows:
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)
        else:
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_rank_without_ids_contributes_too(ranks, make_table):
    table = make_table(dim=4, sync=True)
    in_threads(lambda client: client.join_steps([table]), ranks)
    before = ranks[0].read_rows(table, [1])

    def train(rank):
        count = 1 - rank
        gradient = embla.Gradient(table, [1] * count, np.ones((count, 4), np.float32))
        ranks[rank].update([gradient], step=0, learning_rate=0.5)

    in_threads(train, range(RANKS))
    np.testing.assert_allclose(before - ranks[0].read_rows(table, [1]), 0.5, atol=1e-6)


def test_a_step_waits_for_all_ranks(ranks, make_table):
    table = make_table(dim=4, sync=True)
    in_threads(lambda client: client.join_steps([table]), ranks)
    gradient = embla.Gradient(table, [1], np.ones((1, 4), np.float32))
    first = ranks[0].update_async([gradient], step=0)
    second = ranks[0].update_async([gradient], step=1)
    with pytest.raises(embla.DeadlineExceededError):
        second.wait(timeout=0.2)
    assert not first.done()
    ranks[1].update([gradient], step=0)
    first.wait()
    ranks[1].update([gradient], step=1)
    second.wait()


def test_a_step_that_is_over_is_an_error(ranks, make_table):
    table = make_table(dim=4, sync=True)
    in_threads(lambda client: client.join_steps([table]), ranks)
    gradient = embla.Gradient(table, [1], np.ones((1, 4), np.float32))
    in_threads(lambda client: client.update([gradient], step=0), ranks)
    with pytest.raises(embla.FailedPreconditionError, match="step 0 is over, step 1 is next"):
        ranks[0].update([gradient], step=0)


def test_a_silent_rank_is_closed_and_joins_again(ranks, make_table):
    table = make_table(dim=4, sync=embla.Sync(step_timeout_ms=500))
    in_threads(lambda client: client.join_steps([table]), ranks)
    gradient = embla.Gradient(table, [1], np.ones((1, 4), np.float32))
    in_threads(lambda client: client.update([gradient], step=0), ranks)
    ranks[0].update([gradient], step=1)  # Ends without rank 1.
    with pytest.raises(embla.FailedPreconditionError, match="join again"):
        ranks[1].update([gradient], step=1)
    (first,) = ranks[1].join_steps([table])
    assert first >= 2
    for step in range(2, first):
        ranks[0].update([gradient], step=step)
    in_threads(lambda client: client.update([gradient], step=first), ranks)


def test_a_rank_that_misses_is_named(cluster, make_table):
    table = make_table(sync=True)
    with (
        cluster.connect(rank=1, ranks=3) as client,
        pytest.raises(embla.DeadlineExceededError, match=r"missing are 0, 1, 2 of 3|missing are 0"),
    ):
        client.join_steps([table], timeout=1.5)


def test_a_client_without_a_rank_only_reads(client, make_table):
    table = make_table(dim=4, sync=True)
    assert client.table(table).info.sync
    client.read_rows(table, [1])
    with pytest.raises(embla.InvalidArgumentError, match="connect with rank and ranks"):
        client.update([embla.Gradient(table, [1], np.ones((1, 4), np.float32))])
    with pytest.raises(embla.InvalidArgumentError, match="must be below ranks"):
        embla.connect(client.coordinator, rank=2, ranks=2)
