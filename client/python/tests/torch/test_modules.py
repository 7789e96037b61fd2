"""Modules: shapes, arguments, gradients of weights, copies, pickles, exports."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from small_model import FEATURES, Model, batch, train
from torch import nn

from embla.torch import Embedding, EmbeddingBag, EmbeddingBagSet, Feature

ALL = np.arange(1000)


@pytest.fixture
def weight(client):
    """The rows of t8, as torch has them."""
    return torch.from_numpy(client.read_rows("t8", ALL).copy())


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("form", ["matrix", "offsets", "last offset", "lengths"])
def test_an_embedding_bag_equals_torchs(client, weight, pooling, form):
    last = form == "last offset"
    ours = EmbeddingBag(client, "t8", pooling=pooling, include_last_offset=last)
    theirs = nn.EmbeddingBag.from_pretrained(weight, mode=pooling, include_last_offset=last)
    ids = torch.tensor([1, 2, 3, 4, 5, 6])
    if form == "matrix":
        ids = ids.view(2, 3)
        assert torch.allclose(ours(ids), theirs(ids))
    elif form == "lengths":
        expected = theirs(ids, torch.tensor([0, 2, 2]))
        assert torch.allclose(ours(ids, lengths=torch.tensor([2, 0, 4])), expected)
    else:
        offsets = torch.tensor([0, 2, 2, 6] if last else [0, 2, 2])
        assert torch.allclose(ours(ids, offsets), theirs(ids, offsets))


def test_an_embedding_bag_wants_its_bags_in_one_form(client):
    bag = EmbeddingBag(client, "t8")
    with pytest.raises(ValueError, match="either offsets or lengths"):
        bag(torch.arange(3))
    with pytest.raises(ValueError, match="either offsets or lengths"):
        bag(torch.arange(3), torch.tensor([0]), lengths=torch.tensor([3]))


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,), (2, 0, 3)])
def test_an_embedding_equals_torchs(client, weight, shape):
    ids = torch.randint(0, 1000, shape)
    rows = Embedding(client, "t8")(ids)
    assert torch.equal(rows, nn.Embedding.from_pretrained(weight)(ids))


def test_an_embedding_sends_a_gradient_per_id(client):
    rows = Embedding(client, "t8")(torch.tensor([[1, 2], [3, 1]]))
    rows.backward(torch.arange(32.0).view(2, 2, 8))
    update = client.calls[-1].arguments
    assert (update["ids"] == [1, 2, 3, 1]).all()
    assert (update["gradients"] == np.arange(32).reshape(4, 8)).all()


def test_a_table_is_found_that_the_plan_of_the_client_does_not_have_yet(client, monkeypatch):
    real, before = client._client, [[]]
    tables = real.tables
    monkeypatch.setattr(real, "tables", lambda: before.pop() if before else tables())
    assert Embedding(client, "t8")(torch.tensor([1])).shape == (1, 8)
    assert not before


def test_a_table_that_does_not_exist_is_named(client):
    with pytest.raises(ValueError, match="no table 'elsewhere'"):
        Embedding(client, "elsewhere")


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([], "at least one"),
        ([Feature("t8", "sum", 8), Feature("t16", "none", 16)], "either all"),
        ([Feature("t8", "none", 8), Feature("t16", "none", 16)], "share one dim"),
    ],
)
def test_features_that_cannot_share_a_call_are_refused(client, features, message):
    with pytest.raises(ValueError, match=message):
        EmbeddingBagSet(client, features)


def test_options_are_checked(client):
    with pytest.raises(ValueError, match="update_mode"):
        Embedding(client, "t8", update_mode="later")
    with pytest.raises(ValueError, match="in_flight_max"):
        Embedding(client, "t8", in_flight_max=0)


def test_batch_sizes_that_differ_give_flat_blocks(client, weight):
    rows = EmbeddingBagSet(client, FEATURES[:2])
    ids = torch.arange(9)
    lengths = torch.tensor([2, 1, 3, 3], dtype=torch.int32)
    out = rows(ids, lengths, batch_sizes=[3, 1])
    bags = [weight[part].sum(0) for part in ids.split(lengths.tolist())]
    assert torch.allclose(out.view(4, 8), torch.stack(bags))
    out.backward(torch.arange(32.0))
    assert (client.calls[-1].arguments["gradients"] == np.arange(32)).all()


@pytest.mark.parametrize("batch_sizes", [None, [1, 2]])
def test_a_gradient_reaches_per_sample_weights(client, weight, batch_sizes):
    rows = EmbeddingBagSet(client, FEATURES[:2])
    lengths = torch.tensor([2, 0, 3, 1] if batch_sizes is None else [2, 3, 1])
    ids = torch.tensor([7, 7, 1, 2, 3, 9])
    ours = torch.rand(6, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    gradient = torch.rand(32 if batch_sizes is None else 24)
    out = rows(ids, lengths, ours, batch_sizes=batch_sizes)
    out.backward(gradient.view_as(out))
    bag = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    pooled = torch.zeros(len(lengths), 8).index_add(0, bag, weight[ids] * theirs[:, None])
    if batch_sizes is None:
        pooled = pooled.view(2, 2, 8).transpose(0, 1).reshape(2, 16)
    pooled.backward(gradient.view_as(pooled))
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)
    assert client.order.count("U") == 1
    assert (client.calls[-1].arguments["weights"] == ours.detach().numpy()).all()


def test_weights_of_a_frozen_module_still_get_their_gradient(client):
    rows = EmbeddingBagSet(client, FEATURES[:1]).requires_grad_(False)
    weights = torch.ones(3, requires_grad=True)
    rows(torch.arange(3), torch.tensor([3]), weights).sum().backward()
    assert weights.grad is not None
    assert "U" not in client.order


def test_no_parameter_and_no_state_is_seen(client):
    rows = EmbeddingBagSet(client, FEATURES)
    assert not list(rows.parameters())
    assert not list(rows.buffers())
    assert not rows.state_dict()


def test_half_and_double_leave_the_rows_fp32(client):
    for model in (Model(client).half(), Model(client).double()):
        assert model.rows(*batch(0)).dtype == torch.float32


def test_a_deep_copy_shares_the_client_and_counts_for_itself(client):
    model = Model(client)
    train(model, steps=2)
    other = copy.deepcopy(model)
    assert other.rows.site.client is model.rows.site.client
    assert other.rows.site.handle != model.rows.site.handle
    train(other, steps=1)
    assert (model.rows.site.step, other.rows.site.step) == (2, 3)
    assert torch.equal(other.dense.weight, model.dense.weight)


def test_a_copy_of_a_frozen_module_is_frozen(client):
    rows = copy.deepcopy(EmbeddingBagSet(client, FEATURES).requires_grad_(False))
    assert not rows(*batch(0)).requires_grad


def test_a_pickled_module_connects_again(client):
    model = Model(client, update_mode="async")
    train(model, steps=1)
    expected = model(*batch(5))
    for other in (pickle.loads(pickle.dumps(model)), save_and_load(model)):
        assert other.rows.site.options == model.rows.site.options
        assert other.rows.site.step == 1
        assert torch.equal(other(*batch(5)), expected)
        assert other.rows.site.client is not client


def save_and_load(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_module_looks_up_in_the_service(client, tmp_path, strict):
    model = Model(client).eval()
    dynamic = {0: torch.export.Dim.AUTO}
    program = torch.export.export(model, batch(0), dynamic_shapes=(dynamic, dynamic), strict=strict)
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for seed in (0, 1):
        assert torch.allclose(loaded(*batch(seed)), model(*batch(seed)))
    graph = str(program.graph)
    assert "embla.lookup" in graph
