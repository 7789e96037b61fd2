"""Asynchronous updates, prefetched rows and pipelines: overlap that does not change a number."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from small_model import FEATURES, Model, batch, train

import embla.torch
from embla.torch import EmbeddingBagSet, TrainPipeline

ALL = np.arange(1000)


def test_an_asynchronous_update_is_on_its_way_when_backward_returns(client):
    client.hold_updates = True
    rows = EmbeddingBagSet(client, FEATURES, update_mode="async")
    before = client.read_rows("t8", ALL).copy()
    rows(*batch(0)).sum().backward()
    assert (client.read_rows("t8", ALL) == before).all()
    embla.torch.flush(rows)
    assert not (client.read_rows("t8", ALL) == before).all()


def test_a_lookup_waits_for_the_updates_before_it(client):
    client.hold_updates = True
    rows = EmbeddingBagSet(client, FEATURES, update_mode="async")
    first = rows(*batch(0))
    first.sum().backward()
    assert not torch.equal(rows(*batch(0)), first)


def test_a_lookup_waits_for_the_updates_of_other_modules(client):
    client.hold_updates = True
    one, other = (EmbeddingBagSet(client, FEATURES, update_mode="async") for _ in range(2))
    first = one(*batch(0))
    first.sum().backward()
    assert not torch.equal(other(*batch(0)), first)


def test_updates_in_flight_are_bounded(client):
    client.hold_updates = True
    rows = EmbeddingBagSet(client, FEATURES, update_mode="async", in_flight_max=2)
    outputs = [rows(*batch(seed)) for seed in range(4)]
    before = client.read_rows("t8", ALL).copy()
    outputs[0].sum().backward()
    outputs[1].sum().backward()
    assert (client.read_rows("t8", ALL) == before).all()
    outputs[2].sum().backward()
    assert not (client.read_rows("t8", ALL) == before).all()


def test_memory_that_is_reused_after_backward_does_not_reach_the_update(client):
    client.hold_updates = True
    rows = EmbeddingBagSet(client, FEATURES[:1], update_mode="async")
    ids, lengths, gradient = torch.tensor([1, 2]), torch.tensor([2]), torch.ones(1, 8)
    before = client.read_rows("t8", ALL).copy()
    rows(ids, lengths).backward(gradient)
    ids.fill_(500)
    gradient.fill_(1e6)
    embla.torch.flush(rows)
    changed = np.flatnonzero((client.read_rows("t8", ALL) != before).any(axis=1))
    assert changed.tolist() == [1, 2]
    assert abs(client.read_rows("t8", ALL) - before).max() < 10


@pytest.mark.parametrize("call", ["lookup", "flush", "prefetched"])
def test_a_failed_update_is_raised_once_by_the_next_call(client, call):
    rows = EmbeddingBagSet(client, FEATURES, update_mode="async")
    prefetch = rows.prefetch(*batch(1)) if call == "prefetched" else None
    client.failure = ConnectionError("node 2 is gone")
    rows(*batch(0)).sum().backward()
    if prefetch is not None:
        prefetch.wait()
    with pytest.raises(ConnectionError, match="node 2 is gone"):
        rows.flush() if call == "flush" else rows(*batch(0))
    rows(*batch(0))
    rows.flush()


def test_a_failed_synchronous_update_is_raised_by_backward(client):
    rows = EmbeddingBagSet(client, FEATURES)
    client.failure = ConnectionError("node 2 is gone")
    with pytest.raises(ConnectionError, match="node 2 is gone"):
        rows(*batch(0)).sum().backward()


def test_a_forward_pass_takes_prefetched_rows(client):
    rows = EmbeddingBagSet(client, FEATURES)
    expected = rows(*batch(0))
    rows.prefetch(*batch(0))
    assert client.order == "LL"
    assert torch.equal(rows(*batch(0)), expected)
    assert client.order == "LL"
    rows(*batch(0))
    assert client.order == "LLL"
    assert (rows.site.prefetch_hits, rows.site.prefetch_misses) == (1, 0)


@pytest.mark.parametrize("other", ["ids", "lengths", "weights", "batch_sizes"])
def test_other_arguments_are_a_miss(client, other):
    rows = EmbeddingBagSet(client, FEATURES[:2])
    ids, lengths, weights = torch.arange(6), torch.tensor([1, 2, 3, 0]), torch.rand(6)
    given = {"values": ids, "lengths": lengths, "weights": weights}
    rows.prefetch(**given)
    changed = {
        "ids": {"values": ids + 1},
        "lengths": {"lengths": lengths.flip(0)},
        "weights": {"weights": None},
        "batch_sizes": {"batch_sizes": [2, 2]},
    }[other]
    rows(**(given | changed))
    assert (rows.site.prefetch_hits, rows.site.prefetch_misses) == (0, 1)


def test_prefetched_rows_are_those_after_the_updates_before_it(client):
    client.hold_updates = True
    rows = EmbeddingBagSet(client, FEATURES, update_mode="async")
    first = rows(*batch(0))
    first.sum().backward()
    rows.prefetch(*batch(0))
    after = rows(*batch(0))
    assert rows.site.prefetch_hits == 1
    assert not torch.equal(after, first)
    assert torch.equal(rows(*batch(0)), after)


def test_ids_that_change_after_a_prefetch_are_looked_up_afresh(client):
    rows = EmbeddingBagSet(client, FEATURES)
    ids, lengths = batch(0)
    rows.prefetch(ids, lengths)
    ids[0] += 1
    fresh = rows(ids, lengths)
    assert rows.site.prefetch_misses == 1
    rows.site.prefetch_hits = 0
    assert torch.equal(rows(ids, lengths), fresh)


def test_what_a_block_does_not_take_is_given_up(client):
    rows = EmbeddingBagSet(client, FEATURES)
    with rows.prefetch(*batch(0)):
        pass
    rows(*batch(0))
    assert rows.site.prefetch_hits == 0


def test_prefetched_rows_that_nobody_takes_are_bounded(client):
    rows = EmbeddingBagSet(client, FEATURES)
    for seed in range(20):
        rows.prefetch(*batch(seed))
    rows(*batch(0))
    assert rows.site.prefetch_hits == 0
    rows(*batch(19))
    assert rows.site.prefetch_hits == 1


def test_a_compiled_model_takes_prefetched_rows(client):
    model = Model(client)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for step in range(3):
        model.rows.prefetch(*batch(step))
        compiled(*batch(step)).square().mean().backward()
    assert model.rows.site.prefetch_hits == 3


class Task(torch.nn.Module):
    def __init__(self, client, **options):
        super().__init__()
        torch.manual_seed(3)
        self.model = Model(client, **options)

    def forward(self, inputs):
        out = self.model(*inputs)
        return out.square().mean(), out.detach()


def run_pipeline(client, steps, *, update_mode="async", **options):
    task = Task(client, update_mode=update_mode)
    optimizer = torch.optim.SGD(task.parameters(), lr=0.1)
    pipeline = TrainPipeline(
        task, optimizer, prefetch=lambda inputs: task.model.rows.prefetch(*inputs), **options
    )
    batches = (batch(seed, rows=40) for seed in range(steps))
    losses = []
    with pytest.raises(StopIteration):
        while True:
            losses.append(pipeline.progress(batches)[0].item())
    embla.torch.flush(task)
    assert task.model.rows.site.prefetch_hits == steps
    return losses


def run_loop(client, steps):
    task = Task(client)
    optimizer = torch.optim.SGD(task.parameters(), lr=0.1)
    losses = []
    for seed in range(steps):
        optimizer.zero_grad()
        loss, _ = task(batch(seed, rows=40))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_pipeline_with_staleness_0_has_the_bits_of_a_loop(client, create_tables):
    expected = run_loop(client, 6)
    create_tables()
    client.refresh_plan()
    assert run_pipeline(client, 6, staleness=0) == expected


def test_a_pipeline_with_staleness_1_looks_up_before_the_update(client):
    run_pipeline(client, 4, update_mode="sync", staleness=1)
    assert client.order == "LLULULUU"


def test_the_order_of_a_pipeline_with_staleness_0(client):
    run_pipeline(client, 4, update_mode="sync", staleness=0)
    assert client.order == "LULULULU"


def test_a_pipeline_takes_another_iterator_after_the_first(client):
    task = Task(client)
    pipeline = TrainPipeline(
        task, torch.optim.SGD(task.parameters(), lr=0.1), prefetch=lambda _: None
    )
    for epoch in range(2):
        batches = iter([batch(epoch), batch(epoch + 1)])
        steps = sum(1 for _ in iter(lambda b=batches: progress_or_none(pipeline, b), None))
        assert steps == 2


def progress_or_none(pipeline, batches):
    try:
        return pipeline.progress(batches)
    except StopIteration:
        return None


def test_staleness_is_checked(client):
    with pytest.raises(ValueError, match="staleness"):
        TrainPipeline(torch.nn.Linear(1, 1), None, prefetch=itertools.count, staleness=2)


def test_training_asynchronously_has_the_bits_of_training_synchronously(client, create_tables):
    results = []
    for mode in ("sync", "async"):
        create_tables()
        client.refresh_plan()
        torch.manual_seed(1)
        model = Model(client, update_mode=mode)
        train(model, steps=5)
        model.rows.flush()
        results.append(client.read_rows("t8", ALL).copy())
    assert (results[0] == results[1]).all()
