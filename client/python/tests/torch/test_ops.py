"""The operators in eager mode: when updates are sent, how often, in which order."""

from __future__ import annotations

import contextlib
import itertools

import pytest
import torch
from small_model import FEATURES, Model, batch, train
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from embla.torch import EmbeddingBagSet


def test_each_backward_pass_sends_one_update_after_its_lookup(client):
    train(Model(client), steps=3)
    assert client.order == "LULULU"


def test_the_update_carries_the_gradient_of_the_output(client):
    rows = EmbeddingBagSet(client, FEATURES)
    ids, lengths = batch(0)
    out = rows(ids, lengths)
    (out * 3).sum().backward()
    update = client.calls[1].arguments
    assert (update["gradients"] == 3).all()
    assert update["gradients"].shape == out.shape == (16, 32)
    assert (update["ids"] == ids.numpy()).all()
    assert (update["lengths"] == lengths.numpy()).all()


def test_updates_are_numbered_from_one(client):
    train(Model(client), steps=3)
    assert [c.arguments["step"] for c in client.calls if c.kind == "U"] == [1, 2, 3]


def test_a_module_called_twice_in_a_forward_pass_sends_two_updates(client):
    train(Model(client, calls=2), steps=2)
    assert client.order == "LLUULLUU"


def test_a_second_backward_pass_over_a_retained_graph_is_a_second_update(client):
    loss = Model(client)(*batch(0)).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    assert client.order == "LUU"


def test_activation_checkpointing_looks_up_twice_and_updates_once(client):
    model = Model(client)
    for step in range(3):
        checkpoint(model, *batch(step), use_reentrant=False).square().mean().backward()
    assert client.order == "LLULLULLU"


def test_no_grad_sends_nothing(client):
    with torch.no_grad():
        assert not Model(client)(*batch(0)).requires_grad
    assert client.order == "L"


def test_a_frozen_module_sends_nothing(client):
    model = Model(client)
    model.rows.requires_grad_(False)
    train(model, steps=1)
    model.rows.requires_grad_(True)
    train(model, steps=1)
    assert client.order == "LLU"


def test_a_forward_pass_whose_output_is_not_used_sends_nothing(client):
    model = Model(client)
    model.rows(*batch(1))
    train(model, steps=1)
    assert client.order == "LLU"


def test_rows_are_fp32_under_autocast_and_the_update_arrives(client):
    model = Model(client)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.rows(*batch(0)).dtype == torch.float32
        loss = model(*batch(0)).float().square().mean()
    loss.backward()
    assert client.order == "LLU"


def test_ids_and_lengths_may_have_either_integer_type(client):
    rows = EmbeddingBagSet(client, FEATURES)
    ids, lengths = batch(0)
    expected = rows(ids, lengths)
    assert torch.equal(rows(ids.int(), lengths.long()), expected)


def test_ids_that_change_before_the_backward_pass_are_noticed(client):
    ids, lengths = batch(0)
    loss = EmbeddingBagSet(client, FEATURES)(ids, lengths).sum()
    ids.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_gradient_of_a_strided_slice_arrives_whole(client):
    rows = EmbeddingBagSet(client, FEATURES)
    rows(*batch(0)).t()[::2].sum().backward()
    gradients = client.calls[1].arguments["gradients"]
    assert (gradients[:, ::2] == 1).all()
    assert (gradients[:, 1::2] == 0).all()


def test_the_gradient_is_scaled(client):
    EmbeddingBagSet(client, FEATURES, grad_scale=0.25)(*batch(0)).sum().backward()
    assert (client.calls[1].arguments["gradients"] == 0.25).all()


def test_the_wire_format_and_the_timeout_are_passed_on(client):
    EmbeddingBagSet(client, FEATURES, wire="fp16", timeout=7.0)(*batch(0)).sum().backward()
    for call in client.calls:
        assert (call.arguments["wire"], call.arguments["timeout"]) == ("fp16", 7.0)


def test_a_batch_without_bags_has_no_rows(client):
    rows = EmbeddingBagSet(client, FEATURES)
    out = rows(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int32))
    assert out.shape == (0, 32)


def test_opcheck(client):
    # Opcheck runs the operators again and again and compares: no update may change a row.
    rows = EmbeddingBagSet(client, FEATURES[:2], grad_scale=0.0)
    hook = torch.zeros(1, requires_grad=True)
    ids, lengths = torch.arange(12), torch.full((6,), 2, dtype=torch.int32)
    handle, dims = rows.site.handle, rows.site.dims
    gradients = {None: torch.ones(3, 16), (4, 2): torch.ones(48)}
    for weights, (key, gradient) in itertools.product((None, torch.rand(12)), gradients.items()):
        sizes = None if key is None else list(key)
        arguments = (hook, ids, lengths, weights, handle, dims, True, sizes)
        torch.library.opcheck(torch.ops.embla.lookup.default, arguments)
        arguments = (gradient, ids, lengths, weights, handle, sizes, None)
        torch.library.opcheck(torch.ops.embla.update.default, arguments)
        arguments = (gradient, ids, lengths, handle, sizes)
        torch.library.opcheck(torch.ops.embla.weight_gradient.default, arguments)


def test_a_handle_outlives_its_module_only_as_an_error(client):
    model = Model(client)
    handle = model.rows.site.handle
    del model
    ids, lengths = batch(0)
    with pytest.raises(RuntimeError, match=f"no module has the handle {handle}"):
        torch.ops.embla.lookup(torch.zeros(1), ids, lengths, None, handle, [8, 8, 16], True, None)


class OperatorNames(TorchDispatchMode):
    """Writes down which operators of Embla are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace == "embla":
            self.names.append(op.name())
        return op(*args, **(kwargs or {}))


def test_who_looks_at_operators_sees_them(client):
    model = Model(client)
    with OperatorNames() as seen:
        train(model, steps=2)
    assert seen.names == ["embla::lookup", "embla::update"] * 2
    assert client.order == "LULU"


def test_eager_mode_sends_what_the_operators_send(client, create_tables):
    gradients = []
    for mode in (contextlib.nullcontext(), OperatorNames()):
        create_tables()
        client.refresh_plan()
        torch.manual_seed(1)
        with mode:
            train(Model(client), steps=1)
        gradients.append(client.calls[-1].arguments["gradients"])
    assert abs(gradients[0]).max() > 1e-4
    assert (gradients[0] == gradients[1]).all()
