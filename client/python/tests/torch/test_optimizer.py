"""The fused optimizer: learning rates and numbers of updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_model import FEATURES, Model, batch, train

from embla.torch import Embedding, EmbeddingBagSet, FusedOptimizer


def rates(client):
    return [c.arguments["learning_rates"] for c in client.calls if c.kind == "U"]


def test_without_an_optimizer_the_service_has_the_learning_rate(client):
    train(Model(client), steps=1)
    assert rates(client) == [None]


def test_the_learning_rate_goes_into_the_next_update(client):
    model = Model(client)
    optimizer = FusedOptimizer(model, lr={"t8": 0.5, "t16": 0.25})
    train(model, steps=1)
    optimizer.param_groups[0]["lr"] = 0.125
    train(model, steps=1)
    assert [list(r) for r in rates(client)] == [[0.5, 0.5, 0.25], [0.125, 0.125, 0.25]]
    assert rates(client)[0].dtype == np.float32


def test_the_learning_rate_scales_the_step(client):
    rows = EmbeddingBagSet(client, FEATURES[:1])
    optimizer = FusedOptimizer(rows, lr=0.0)
    ids, lengths = torch.tensor([3]), torch.tensor([1])
    first = rows(ids, lengths)
    first.sum().backward()
    second = rows(ids, lengths)
    assert torch.equal(first, second)
    optimizer.param_groups[0]["lr"] = 0.5
    second.sum().backward()
    assert torch.allclose(rows(ids, lengths), second - 0.5)


def test_a_scheduler_of_torch_sets_the_learning_rate(client):
    model = Model(client)
    optimizer = FusedOptimizer(model, lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    for step in range(3):
        train(model, steps=1)
        optimizer.step()
        scheduler.step()
        assert rates(client)[step].tolist() == [0.5**step] * 3


def test_there_is_one_group_per_table_of_all_modules(client):
    model = torch.nn.ModuleList([Model(client), Embedding(client, "t8")])
    groups = FusedOptimizer(model, lr=0.1).param_groups
    assert [group["table"] for group in groups] == ["t8", "t16"]


def test_step_and_zero_grad_do_nothing_to_the_rows(client):
    model = Model(client)
    optimizer = FusedOptimizer(model, lr=1.0)
    train(model, steps=1)
    optimizer.step()
    optimizer.zero_grad()
    assert optimizer.step(lambda: 7) == 7
    assert client.order == "LU"


def test_state_holds_learning_rates_and_numbers_of_updates(client):
    model = Model(client)
    optimizer = FusedOptimizer(model, lr=0.5)
    optimizer.param_groups[1]["lr"] = 0.125
    train(model, steps=3)
    state = optimizer.state_dict()

    resumed = Model(client)
    other = FusedOptimizer(resumed, lr=9.0)
    other.load_state_dict(state)
    assert resumed.rows.site.step == 3
    train(resumed, steps=1)
    assert rates(client)[-1].tolist() == [0.5, 0.5, 0.125]
    assert client.calls[-1].arguments["step"] == 4


def test_a_copy_of_a_model_keeps_no_optimizer(client):
    import copy

    model = Model(client)
    FusedOptimizer(model, lr=0.5)
    train(copy.deepcopy(model), steps=1)
    assert rates(client) == [None]


def test_what_uses_no_table_is_refused(client):
    with pytest.raises(ValueError, match="no table"):
        FusedOptimizer(torch.nn.Linear(1, 1), lr=0.1)
    with pytest.raises(ValueError, match="no learning rate of t16"):
        FusedOptimizer(Model(client), lr={"t8": 0.1})


def test_batches_repeat_ids():
    ids, _ = batch(0, rows=10)
    assert len(ids.unique()) < len(ids)
