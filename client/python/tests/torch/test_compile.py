"""Updates under ``torch.compile``: all of them arrive, once and in order."""

from __future__ import annotations

import pytest
import torch
from small_model import FEATURES, Model, batch, train
from torch.library import Library, register_autograd, register_fake

from embla.torch import EmbeddingBagSet

BACKENDS = ["aot_eager", "inductor"]
ORDERED_EFFECTS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def compiled(model, backend):
    return torch.compile(model, fullgraph=True, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_update_arrives_once_and_in_order(client, backend):
    train(compiled(Model(client), backend), steps=3)
    assert client.order == "LULULU"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_model_sends_the_gradients_of_an_eager_one(client, create_tables, backend):
    model = Model(client)
    train(model, steps=1)
    create_tables()
    client.refresh_plan()
    train(compiled(model, backend), steps=1)
    eager, other = (c.arguments["gradients"] for c in client.calls if c.kind == "U")
    assert abs(eager).max() > 1e-4
    assert abs(eager - other).max() < 1e-7


def test_a_compiled_backward_pass_of_an_eager_model_sends_its_update(client):
    backend = torch.compile(backend="aot_eager")
    with torch._dynamo.compiled_autograd._enable(backend):
        train(Model(client), steps=2)
    assert client.order == "LULU"


@pytest.mark.skipif(not ORDERED_EFFECTS, reason="torch before 2.14 has no effects in backward")
@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_lookups_are_not_merged(client, backend):
    train(compiled(Model(client, calls=2), backend), steps=2)
    assert client.order == "LLUULLUU"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_update_whose_result_is_thrown_away_would_be_dropped(client, backend):
    """Why the lookup's backward returns the update's result as the gradient of the hook."""
    sent = []
    name = f"embla_test_{backend}"  # Versions before 2.14 forget no library.
    library = Library(name, "DEF")
    library.define("lookup(Tensor hook, Tensor ids) -> Tensor")
    library.define("update(Tensor gradient) -> Tensor")
    library.impl("lookup", lambda hook, ids: torch.ones(ids.numel(), 4), "CPU")
    library.impl("update", lambda gradient: (sent.append(1), torch.zeros(1))[1], "CPU")
    register_fake(f"{name}::lookup", lambda hook, ids: torch.empty(ids.numel(), 4), lib=library)
    register_fake(f"{name}::update", lambda gradient: torch.empty(1), lib=library)

    def throw_away(ctx, gradient):
        ops.update(gradient)
        return torch.zeros(1), None

    register_autograd(f"{name}::lookup", throw_away, lib=library)
    ops = getattr(torch.ops, name)
    hook = torch.zeros(1, requires_grad=True)

    def loss(ids):
        return ops.lookup(hook, ids).square().sum()

    loss(torch.arange(3)).backward()
    assert len(sent) == 1
    torch.compile(loss, fullgraph=True, backend=backend)(torch.arange(3)).backward()
    assert len(sent) == 1, "torch keeps unused operators now; see whether the hook is needed"


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_of_other_sizes_need_no_other_graph(client, backend):
    model = torch.compile(
        EmbeddingBagSet(client, FEATURES), fullgraph=True, backend=backend, dynamic=True
    )
    for seed in range(3):
        ids, lengths = batch(seed)
        model(ids, lengths).sum().backward()
    short = torch.zeros(3, dtype=torch.int32)
    short[0] = 5
    assert model(torch.arange(5), short).shape == (1, 32)
    assert client.order == "LULULUL"


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_of_weights_is_that_of_eager_mode(client, backend):
    rows = EmbeddingBagSet(client, FEATURES[:2])
    lengths = torch.full((6,), 2, dtype=torch.int32)
    weights = torch.rand(12, requires_grad=True)

    def loss(ids):
        return rows(ids, lengths, weights).square().sum()

    rows.requires_grad_(False)
    (eager,) = torch.autograd.grad(loss(torch.arange(12)), weights)
    rows.requires_grad_(True)
    (gradient,) = torch.autograd.grad(compiled(loss, backend)(torch.arange(12)), weights)
    assert torch.allclose(gradient, eager)
