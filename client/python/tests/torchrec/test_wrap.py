"""Whole models: into the service, and back to local modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchrec
from builders import apply_optimizer, bag_config, config, copy_rows, features
from torch import nn
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ParameterSharding, ShardingPlan
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    LFU_EvictionPolicy,
    LRU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)

import embla.torchrec
from embla.torchrec import to_local, wrap

LENGTHS = {"a": [2, 0, 1], "b": [1, 3, 0]}


class Tower(nn.Module):
    def __init__(self, device="cpu"):
        super().__init__()
        device = torch.device(device)
        self.bags = torchrec.EmbeddingBagCollection(
            [bag_config("t", ["a"]), bag_config("u", ["b"])], device=device
        )
        self.inner = nn.ModuleDict(
            {"rows": torchrec.EmbeddingCollection([config("v", ["a"])], device=device)}
        )
        self.dense = nn.Linear(16, 1)

    def forward(self, inputs):
        rows = self.inner["rows"](inputs)["a"].values()
        return self.dense(self.bags(inputs).values()).sum() + rows.square().sum()


def optimized(model):
    for module in (model.bags, model.inner["rows"]):
        apply_optimizer(module, torchrec.optim.RowWiseAdagrad, lr=0.1)
    return model


def test_all_collections_are_replaced_and_their_optimizers_taken_over(service):
    model = wrap(optimized(Tower("meta")), **service)
    assert isinstance(model.bags, embla.torchrec.EmbeddingBagCollection)
    assert isinstance(model.inner["rows"], embla.torchrec.EmbeddingCollection)
    model(features(LENGTHS)).backward()
    assert {info.optimizer for info in service["client"].tables()} == {"rowwise_adagrad"}
    assert model.bags.site.step == model.inner["rows"].site.step == 1


def test_a_collection_itself_is_replaced(service):
    module = torchrec.EmbeddingBagCollection([bag_config("t", ["a"])], device=torch.device("meta"))
    assert isinstance(wrap(module, **service), embla.torchrec.EmbeddingBagCollection)


def test_new_tables_begin_with_the_rows_of_the_model(service):
    model = optimized(Tower())
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    wrapped = wrap(model, **service)
    wrapped(features(LENGTHS))
    for table, name in (("t", "bags.embedding_bags.t"), ("v", "inner.rows.embeddings.v")):
        rows = torch.from_numpy(service["client"].read_rows(table, np.arange(50)))
        assert torch.equal(rows, expected[f"{name}.weight"])


def test_tables_that_exist_keep_their_rows(service):
    first = wrap(optimized(Tower("meta")), **service)
    expected = first(features(LENGTHS))
    second = wrap(optimized(Tower()), **service)
    second.dense.load_state_dict(first.dense.state_dict())
    assert torch.equal(second(features(LENGTHS)), expected)


@pytest.mark.parametrize("kind", ["mapping", "torchrec"])
def test_a_plan_names_sharding_types(service, kind):
    plan = {"t": "row_wise", "u": "column_wise"}
    if kind == "torchrec":
        sharding = {
            table: ParameterSharding(sharding_type=name, compute_kernel="fused", ranks=[0])
            for table, name in plan.items()
        }
        plan = ShardingPlan({"bags": EmbeddingModuleShardingPlan(sharding)})
    model = wrap(optimized(Tower("meta")), plan=plan, **service)
    model.bags.connect()
    assert model.bags.plan() == {"t": "row_wise", "u": "column_wise"}


def test_a_local_copy_gives_the_same_without_the_service(service):
    model = wrap(optimized(Tower("meta")), **service)
    model(features(LENGTHS)).backward()
    local = to_local(model)
    assert isinstance(local.bags, torchrec.EmbeddingBagCollection)
    assert isinstance(local.inner["rows"], torchrec.EmbeddingCollection)
    assert isinstance(model.bags, embla.torchrec.EmbeddingBagCollection)
    inputs = features(LENGTHS)
    torch.testing.assert_close(local(inputs), model(inputs))


def test_a_local_copy_can_be_quantised_by_torchrec(service):
    from torchrec.inference.modules import quantize_embeddings

    model = wrap(optimized(Tower("meta")), **service)
    inputs = features(LENGTHS)
    expected = model.bags(inputs).values()
    quantised = quantize_embeddings(
        nn.ModuleDict({"bags": to_local(model.bags)}), dtype=torch.int8, inplace=True
    )
    got = quantised["bags"](inputs).values()
    torch.testing.assert_close(got, expected, rtol=0, atol=5e-3)


def test_ddp_leaves_tables_alone(service):
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        model = wrap(optimized(Tower("meta")), **service)
        parallel = nn.parallel.DistributedDataParallel(model)
        parallel(features(LENGTHS)).backward()
    finally:
        torch.distributed.destroy_process_group()
    assert model.bags.site.step == 1
    assert model.dense.weight.grad is not None


def managed(policy, tables, embedding_module):
    modules = {
        table.name: MCHManagedCollisionModule(
            zch_size=table.num_embeddings,
            device=torch.device("cpu"),
            eviction_policy=policy(),
            eviction_interval=1,
        )
        for table in tables
    }
    name = f"ManagedCollision{type(embedding_module).__name__}"
    return getattr(torchrec.modules.mc_embedding_modules, name)(
        embedding_module, ManagedCollisionCollection(modules, tables)
    )


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (LFU_EvictionPolicy, "lfu"),
        (LRU_EvictionPolicy, "lru"),
        (DistanceLFU_EvictionPolicy, "distance_lfu"),
    ],
)
def test_managed_collisions_become_a_table_of_any_ids(service, cluster, policy, name):
    tables = [bag_config("t", ["a"])]
    inner = torchrec.EmbeddingBagCollection(tables)
    apply_optimizer(inner, lr=1.0)
    module = wrap(managed(policy, tables, inner), **service)
    ids = torch.tensor([-5, 2**62, 0])
    inputs = torchrec.KeyedJaggedTensor(["a"], ids, lengths=torch.tensor([1, 1, 1]))
    before, remapped = module(inputs)
    assert remapped is None
    before.values().sum().backward()
    assert torch.allclose(module(inputs)[0].values(), before.values() - 1.0)
    (table,) = cluster.admin.plan()["tables"]
    assert table["spec"]["zch"]["policy"] == name


def test_managed_collisions_without_pooling(service):
    tables = [config("t", ["a"])]
    inner = torchrec.EmbeddingCollection(tables)
    apply_optimizer(inner, lr=1.0)
    module = wrap(managed(LRU_EvictionPolicy, tables, inner), **service)
    ids = torch.tensor([-5, 2**62])
    inputs = torchrec.KeyedJaggedTensor(["a"], ids, lengths=torch.tensor([2]))
    rows, remapped = module(inputs)
    assert remapped is None
    assert rows["a"].values().shape == (2, 8)


def test_evaluation_of_unseen_ids_admits_none(service):
    tables = [bag_config("t", ["a"])]
    inner = torchrec.EmbeddingBagCollection(tables)
    apply_optimizer(inner)
    module = wrap(managed(LRU_EvictionPolicy, tables, inner), **service).eval()
    inputs = torchrec.KeyedJaggedTensor(["a"], torch.arange(9), lengths=torch.tensor([9]))
    with torch.no_grad():
        module(inputs)
    assert service["client"].table("t").survey().residents == 0


def test_remapped_features_are_refused(service):
    tables = [bag_config("t", ["a"])]
    module = managed(LRU_EvictionPolicy, tables, torchrec.EmbeddingBagCollection(tables))
    module._return_remapped_features = True
    with pytest.raises(ValueError, match="not remapped"):
        wrap(module, **service)


def test_tables_of_any_ids_have_no_local_counterpart(service):
    tables = [bag_config("t", ["a"])]
    inner = torchrec.EmbeddingBagCollection(tables)
    apply_optimizer(inner)
    module = wrap(managed(LRU_EvictionPolicy, tables, inner), **service)
    with pytest.raises(ValueError, match="no local counterpart"):
        to_local(module)
    with pytest.raises(ValueError, match="no local counterpart"):
        to_local(nn.ModuleDict({"m": module}))


def test_our_rows_in_torchrecs_module_give_the_same(service):
    model = wrap(optimized(Tower("meta")), **service)
    local = torchrec.EmbeddingBagCollection([bag_config("t", ["a"]), bag_config("u", ["b"])])
    copy_rows(model.bags, local)
    inputs = features(LENGTHS)
    torch.testing.assert_close(model.bags(inputs).values(), local(inputs).values())
