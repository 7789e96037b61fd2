"""Tables: which are created, which are attached to, which are refused."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from builders import apply_optimizer, bag_config, features
from torchrec.modules.embedding_configs import (
    CountBasedEvictionPolicy,
    DataType,
    FeatureL2NormBasedEvictionPolicy,
)

import embla
from embla.torchrec import EmbeddingBagCollection, RemoteTable
from embla.torchrec.configs import initializer_of, to_table_spec

INIT = torch.nn.init


def collection(service, optimizer=torch.optim.SGD, **fields):
    module = EmbeddingBagCollection([bag_config("t", ["a"], **fields)], **service)
    apply_optimizer(module, optimizer, lr=0.1)
    return module


def test_the_first_use_creates_the_tables(service):
    module = collection(service)
    assert not service["client"].tables()
    module(features({"a": [1, 2]}))
    (info,) = service["client"].tables()
    assert (info.name, info.rows, info.dim, info.optimizer) == ("t", 50, 8, "sgd")


def test_sharding_types_are_passed_on(service):
    module = EmbeddingBagCollection(
        [bag_config("t", ["a"]), bag_config("u", ["b"])],
        sharding={"t": "row_wise", "u": "column_wise"},
        **service,
    )
    apply_optimizer(module)
    module.connect()
    assert module.plan() == {"t": "row_wise", "u": "column_wise"}


def test_a_second_model_attaches_to_the_rows_of_the_first(service):
    first, second = collection(service), collection(service)
    inputs = features({"a": [1, 2]})
    first(inputs).values().sum().backward()
    assert torch.equal(first(inputs).values(), second(inputs).values())


def test_attaching_needs_no_optimizer(service):
    collection(service).connect()
    reader = EmbeddingBagCollection([bag_config("t", ["a"])], **service)
    reader.connect()
    with pytest.raises(RuntimeError, match="no optimizer was applied"):
        _ = reader.fused_optimizer


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_embeddings": 60}, "rows is 50, not 60"),
        ({"embedding_dim": 16}, "dim is 8, not 16"),
        ({"data_type": DataType.FP16}, "dtype is fp32, not fp16"),
        ({"optimizer": torch.optim.Adagrad}, "optimizer is sgd, not adagrad"),
    ],
)
def test_a_table_that_differs_is_refused_and_the_difference_named(service, fields, message):
    collection(service).connect()
    with pytest.raises(ValueError, match=f"table t exists, but its {message}"):
        collection(service, **fields).connect()


def test_a_table_that_exists_can_be_an_error(service):
    collection(service).connect()
    with pytest.raises(ValueError, match="table t exists"):
        collection({**service, "if_exists": "error"}).connect()


def test_a_table_can_be_made_anew(service):
    first = collection(service)
    inputs = features({"a": [1, 2]})
    initial = first(inputs).values().detach()
    first(inputs).values().sum().backward()
    second = collection({**service, "if_exists": "recreate"})
    assert torch.equal(second(inputs).values(), initial)


def test_attaching_changes_hyper_parameters_only_where_it_is_asked_to(service, cluster):
    collection(service).connect()
    for asked, expected in ((False, 0.1), (True, 0.5)):
        module = EmbeddingBagCollection(
            [bag_config("t", ["a"])], update_hyper_parameters=asked, **service
        )
        apply_optimizer(module, lr=0.5)
        module.connect()
        (table,) = cluster.admin.plan()["tables"]
        assert table["spec"]["optimizer"]["learning_rate"] == pytest.approx(expected)


def test_a_prefix_keeps_models_apart(service):
    for prefix in ("one.", "two."):
        collection({**service, "table_prefix": prefix}).connect()
    assert sorted(info.name for info in service["client"].tables()) == ["one.t", "two.t"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_embeddings_post_pruning", 10),
        ("need_pos", True),
        ("input_dim", 10),
        ("enable_embedding_update", True),
        ("stash_weights", True),
        ("data_type", DataType.INT8),
        ("data_type", DataType.NFP8),
    ],
)
def test_fields_without_a_counterpart_are_refused(service, field, value):
    with pytest.raises(ValueError, match="table t: the service"):
        collection(service, **{field: value})


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (partial(INIT.uniform_, a=-0.5, b=0.25), embla.Uniform(-0.5, 0.25)),
        (INIT.uniform_, embla.Uniform(0.0, 1.0)),
        (partial(INIT.normal_, std=0.5), embla.Normal(0.0, 0.5)),
        (INIT.zeros_, embla.Constant()),
        (partial(INIT.constant_, val=3.0), embla.Constant(3.0)),
    ],
)
def test_initial_rows_follow_init_fn(function, expected):
    assert initializer_of(bag_config("t", ["a"], init_fn=function)) == expected


def test_the_default_initial_rows_are_torchrecs(service):
    module = collection(service)
    module.connect()
    rows = service["client"].read_rows("t", np.arange(50))
    assert abs(rows).max() <= (1 / 50) ** 0.5
    assert abs(rows.mean()) < 0.03


@pytest.mark.parametrize("function", [INIT.xavier_uniform_, lambda w: w, partial(INIT.normal_, 1)])
def test_other_initial_rows_are_refused(function):
    with pytest.raises(ValueError, match="write other initial rows"):
        initializer_of(bag_config("t", ["a"], init_fn=function))


def test_a_virtual_table_is_a_zch_table():
    fields = {"use_virtual_table": True, "total_num_buckets": 10}
    policy = CountBasedEvictionPolicy()
    config = bag_config("t", ["a"], virtual_table_eviction_policy=policy, **fields)
    spec = to_table_spec(config, embla.SGD(), name="t", zch=None)
    assert spec.zch == embla.Zch(buckets=10, policy="lfu")
    other = FeatureL2NormBasedEvictionPolicy()
    config = bag_config("t", ["a"], virtual_table_eviction_policy=other, **fields)
    with pytest.raises(ValueError, match="no FeatureL2NormBasedEvictionPolicy"):
        to_table_spec(config, embla.SGD(), name="t", zch=None)


def test_state_has_tables_by_name_and_no_rows(service):
    module = collection(service)
    module.connect()
    address = service["client"].coordinator
    assert module.state_dict() == {
        "embedding_bags.t.weight": RemoteTable("t", 50, 8, "fp32", address)
    }


def test_moving_a_model_leaves_its_tables_alone(service):
    model = torch.nn.Sequential(collection(service), torch.nn.Linear(8, 1))
    model.to(torch.float64).to("cpu").half().float()
    assert model[0].embedding_bags["t"].weight.is_meta
    assert model[0].device == torch.device("cpu")


def test_a_module_on_the_meta_device_works(service):
    module = EmbeddingBagCollection(
        [bag_config("t", ["a"])], device=torch.device("meta"), **service
    )
    apply_optimizer(module)
    assert module(features({"a": [1]})).values().device == torch.device("cpu")


def test_a_copy_and_a_pickle_have_the_same_rows(service):
    module = collection({"client": service["client"], "admin": service["admin"]})
    inputs = features({"a": [1, 2]})
    expected = module(inputs).values()
    assert torch.equal(copy.deepcopy(module)(inputs).values(), expected)
    assert torch.equal(pickle.loads(pickle.dumps(module))(inputs).values(), expected)
