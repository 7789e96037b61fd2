"""Optimizers: which of TorchRec's are which of the service's, and what is refused."""

from __future__ import annotations

import pytest
import torch
import torchrec
from builders import apply_optimizer, bag_config, features
from fbgemm_gpu.split_table_batched_embeddings_ops_training import WeightDecayMode
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.optim.warmup import WarmupOptimizer, WarmupPolicy, WarmupStage

import embla
from embla.torchrec import EmbeddingBagCollection, to_service_optimizer

OPTIM, REC = torch.optim, torchrec.optim
MAPPED = [
    (OPTIM.SGD, {}, embla.SGD(lr=1e-3)),
    (OPTIM.SGD, {"lr": 0.5, "momentum": 0, "nesterov": False}, embla.SGD(lr=0.5)),
    (REC.SGD, {}, embla.SGD(lr=0.01)),
    (REC.SGD, {"learning_rate": 0.5, "eps": 1e-3}, embla.SGD(lr=0.5)),
    (OPTIM.Adagrad, {}, embla.Adagrad(lr=0.01, eps=1e-10)),
    (
        OPTIM.Adagrad,
        {"lr": 0.5, "initial_accumulator_value": 0.25, "foreach": True},
        embla.Adagrad(lr=0.5, eps=1e-10, initial_accumulator=0.25),
    ),
    (REC.Adagrad, {"lr": 0.5}, embla.Adagrad(lr=0.5, eps=1e-8)),
    (REC.RowWiseAdagrad, {}, embla.RowwiseAdagrad(lr=0.01, eps=1e-10)),
    (REC.RowWiseAdagrad, {"lr": 0.5, "eps": 1e-6}, embla.RowwiseAdagrad(lr=0.5, eps=1e-6)),
    (
        REC.RowWiseAdagrad,
        {"lr": 0.5, "weight_decay": 0.1},
        embla.RowwiseAdagrad(lr=0.5, eps=1e-10, weight_decay=0.1, weight_decay_mode="l2"),
    ),
    (
        REC.RowWiseAdagrad,
        {"weight_decay": 0.1, "weight_decay_mode": WeightDecayMode.DECOUPLE},
        embla.RowwiseAdagrad(eps=1e-10, weight_decay=0.1, weight_decay_mode="decoupled"),
    ),
    (
        REC.RowWiseAdagrad,
        {"weight_decay": 0.1, "weight_decay_mode": WeightDecayMode.NONE},
        embla.RowwiseAdagrad(eps=1e-10),
    ),
    (
        REC.RowWiseAdagrad,
        {"gradient_clipping": True, "max_gradient": 0.5},
        embla.RowwiseAdagrad(eps=1e-10, gradient_clip=0.5),
    ),
    (REC.RowWiseAdagrad, {"max_gradient": 0.5}, embla.RowwiseAdagrad(eps=1e-10)),
    (OPTIM.Adam, {}, embla.Adam(lr=1e-3, bias_correction="step")),
    (
        OPTIM.Adam,
        {"lr": 0.5, "betas": (0.5, 0.75), "eps": 1e-6, "weight_decay": 0.1, "amsgrad": False},
        embla.Adam(
            lr=0.5,
            beta1=0.5,
            beta2=0.75,
            eps=1e-6,
            weight_decay=0.1,
            weight_decay_mode="decoupled",
            bias_correction="step",
        ),
    ),
    (REC.Adam, {"beta1": 0.5}, embla.Adam(lr=0.01, beta1=0.5, bias_correction="step")),
]
REFUSED = [
    (OPTIM.SGD, {"momentum": 0.9}, "momentum=0.9"),
    (OPTIM.SGD, {"nesterov": True}, "nesterov"),
    (OPTIM.Adagrad, {"lr_decay": 0.1}, "lr_decay"),
    (OPTIM.Adam, {"amsgrad": True}, "amsgrad"),
    (OPTIM.Adam, {"maximize": True}, "maximize"),
    (REC.RowWiseAdagrad, {"counter_halflife": 5}, "counter_halflife"),
    (
        REC.RowWiseAdagrad,
        {"weight_decay": 0.1, "weight_decay_mode": WeightDecayMode.COUNTER},
        "weight decay of mode",
    ),
    (REC.PartialRowWiseAdam, {}, "SGD, Adagrad, RowWiseAdagrad and Adam"),
    (REC.LAMB, {}, "no LAMB"),
    (REC.PartialRowWiseLAMB, {}, "no PartialRowWiseLAMB"),
    (REC.LarsSGD, {}, "no LarsSGD"),
    (OPTIM.AdamW, {}, "no AdamW"),
]


@pytest.mark.parametrize(("optimizer", "kwargs", "expected"), MAPPED)
def test_an_optimizer_of_torchrec_is_one_of_the_service(optimizer, kwargs, expected):
    assert to_service_optimizer(optimizer, kwargs) == expected


@pytest.mark.parametrize(("optimizer", "kwargs", "message"), REFUSED)
def test_what_the_service_does_not_have_is_refused_by_name(optimizer, kwargs, message):
    with pytest.raises(ValueError, match=message):
        to_service_optimizer(optimizer, kwargs)


@pytest.mark.parametrize("optimizer", [OPTIM.SGD, OPTIM.Adagrad, REC.SGD, REC.Adagrad])
def test_weight_decay_that_fbgemm_ignores_is_a_warning(optimizer):
    with pytest.warns(UserWarning, match="which FBGEMM computes without any"):
        mapped = to_service_optimizer(optimizer, {"weight_decay": 0.1})
    assert (mapped.weight_decay, mapped.weight_decay_mode) == (0.1, "l2")


def test_the_table_is_created_with_the_applied_optimizer(service, cluster):
    module = EmbeddingBagCollection([bag_config("t", ["a"]), bag_config("u", ["b"])], **service)
    apply_optimizer(module.embedding_bags["t"], OPTIM.Adagrad, lr=0.5, eps=1e-6)
    apply_optimizer(module.embedding_bags["u"], OPTIM.SGD, lr=0.25)
    module.connect()
    optimizers = {
        table["spec"]["name"]: table["spec"]["optimizer"]
        for table in cluster.admin.plan()["tables"]
    }
    assert optimizers["t"]["kind"] == "adagrad"
    assert optimizers["t"]["learning_rate"] == 0.5
    assert optimizers["t"]["eps"] == pytest.approx(1e-6)
    assert (optimizers["u"]["kind"], optimizers["u"]["learning_rate"]) == ("sgd", 0.25)


def test_a_new_table_without_an_optimizer_is_refused(service):
    module = EmbeddingBagCollection([bag_config("t", ["a"])], **service)
    with pytest.raises(ValueError, match="table t does not exist, and no optimizer was applied"):
        module(features({"a": [1]}))


def test_several_optimizers_of_one_table_are_refused(service):
    module = EmbeddingBagCollection([bag_config("t", ["a"])], **service)
    apply_optimizer(module, OPTIM.SGD, lr=0.1)
    apply_optimizer(module, OPTIM.Adagrad, lr=0.1)
    with pytest.raises(ValueError, match="several optimizers: SGD, Adagrad"):
        module.connect()


def test_torchrecs_filter_sees_optimizers_in_backward(service):
    module = EmbeddingBagCollection([bag_config("t", ["a"])], **service)
    model = torch.nn.Sequential(module, torch.nn.Linear(8, 1))
    apply_optimizer(module)
    module.connect()
    dense = [name for name, _ in in_backward_optimizer_filter(model.named_parameters())]
    assert dense == ["1.weight", "1.bias"]


@pytest.fixture
def trained(service):
    """A module whose rows fall by its learning rate with each step."""
    module = EmbeddingBagCollection([bag_config("t", ["a"]), bag_config("u", ["b"])], **service)
    apply_optimizer(module, lr=1.0)
    module.connect()

    def step() -> list[float]:
        inputs = features({"a": [1], "b": [1]})
        before = module(inputs).values()
        before.sum().backward()
        fall = before - module(inputs).values()
        return [round(fall[0, 0].item(), 4), round(fall[0, 8].item(), 4)]

    return module, step


def test_groups_have_the_applied_learning_rate_of_each_table(trained):
    module, step = trained
    groups = module.fused_optimizer.param_groups
    assert [group["lr"] for group in groups] == [1.0, 1.0]
    assert list(module.fused_optimizer.params) == [
        "embedding_bags.t.weight",
        "embedding_bags.u.weight",
    ]
    groups[1]["lr"] = 0.25
    assert step() == [1.0, 0.25]


def test_torchrecs_warmup_sets_the_learning_rate(trained):
    module, step = trained
    dense = KeyedOptimizerWrapper(
        {"w": torch.nn.Parameter(torch.ones(1))}, lambda p: OPTIM.SGD(p, lr=1.0)
    )
    stages = [WarmupStage(policy=WarmupPolicy.CONSTANT, max_iters=1, value=0.5)]
    optimizer = WarmupOptimizer(
        CombinedOptimizer([("model", module.fused_optimizer), ("dense", dense)]), stages, lr=1.0
    )
    optimizer.zero_grad()
    assert step() == [0.5, 0.5]
    optimizer.step()
    optimizer.step()
    assert step() == [1.0, 1.0]


def test_hyper_parameters_are_updated(trained):
    module, step = trained
    module.fused_optimizer.update_hyper_parameters({"lr": 0.125})
    assert step() == [0.125, 0.125]
    with pytest.raises(ValueError, match="eps of a table is set by"):
        module.fused_optimizer.update_hyper_parameters({"eps": 1.0})


def test_the_number_of_updates_can_be_set(trained):
    module, step = trained
    module.fused_optimizer.set_optimizer_step(41)
    step()
    assert module.site.step == 42
