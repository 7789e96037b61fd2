"""Collections with ``sync=True``: each trainer a thread with a client of its own."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch
import torchrec
from builders import apply_optimizer, bag_config, config, features
from torch import nn

import embla.torchrec
from embla.torchrec import EmbeddingBagCollection, wrap

LENGTHS = {"a": [2, 0, 1], "b": [1, 3, 0]}
RANKS = 2
STEPS = 3


class Tower(nn.Module):
    """Two collections and a dense part; every rank's is the same."""

    def __init__(self, device):
        super().__init__()
        device = torch.device(device)
        self.bags = torchrec.EmbeddingBagCollection(
            [bag_config("t", ["a"]), bag_config("u", ["b"])], device=device
        )
        self.rows = torchrec.EmbeddingCollection([config("v", ["a"])], device=device)

    def forward(self, inputs):
        rows = self.rows(inputs)["a"].values()
        return self.bags(inputs).values().square().sum() + rows.square().sum()


def test_trainers_step_as_one_with_the_batches_of_all(cluster, client):
    models = [Tower("cpu") for _ in range(RANKS)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    alone = copy.deepcopy(models[0])
    batches = [[features(LENGTHS, seed=10 * s + r) for r in range(RANKS)] for s in range(STEPS)]

    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        sum(alone(part) for part in batch).backward()
        optimizer.step()

    def train(rank):
        with cluster.connect(rank=rank, ranks=RANKS) as mine:
            model = models[rank]
            apply_optimizer(model.bags), apply_optimizer(model.rows)
            model = wrap(model, mine, admin=cluster.admin, sync=embla.Sync())
            model.bags.connect(), model.rows.connect()
            ready.wait()
            for batch in batches:
                model(batch[rank]).backward()
            steps[rank] = (model.bags.site.step, model.rows.site.step)

    ready = threading.Barrier(RANKS)
    steps: list[object] = [None] * RANKS
    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert steps == [(STEPS, STEPS)] * RANKS
    assert all(info.sync for info in client.tables())
    for name, table in [*alone.bags.embedding_bags.items(), *alone.rows.embeddings.items()]:
        rows = client.read_rows(name, np.arange(50))
        np.testing.assert_allclose(rows, table.weight.detach(), atol=1e-5)


def test_attaching_compares_how_tables_step(service):
    table = bag_config("t", ["a"])
    ordinary = EmbeddingBagCollection([table], **service)
    apply_optimizer(ordinary)
    ordinary.connect()
    together = EmbeddingBagCollection([bag_config("t", ["a"])], sync=True, **service)
    apply_optimizer(together)
    with pytest.raises(ValueError, match="sync is False, not True"):
        together.connect()


def test_the_default_client_has_the_rank_of_the_process(cluster, client, monkeypatch):
    monkeypatch.setenv("EMBLA_COORDINATOR", cluster.coordinator)
    embla.set_default_client(None)
    rows = EmbeddingBagCollection([bag_config("t", ["a"])], admin=cluster.admin, sync=True)
    apply_optimizer(rows)
    try:
        rows(features({"a": [2, 1]})).values().sum().backward()
        assert rows.site.step == 1
    finally:
        embla.get_default_client().close()
        embla.set_default_client(None)
