"""Checkpoints: saved and loaded chunk by chunk, readable by stock tools, loaded from TorchRec's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torchrec
from builders import apply_optimizer, bag_config, config, copy_rows, features
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torchrec.modules.embedding_configs import DataType

import embla
import embla.checkpoint
import embla.torch
from embla.checkpoint import remote_tensor
from embla.torchrec import EmbeddingBagCollection, EmbeddingCollection, to_local

OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rowwise_adagrad": torchrec.optim.RowWiseAdagrad,
    "adam": torch.optim.Adam,
}
LENGTHS = {"a": [2, 0, 1, 3], "b": [1, 3, 0, 2]}
WEIGHT = "model.bags.embedding_bags.t.weight"


class Model(nn.Module):
    def __init__(self, service, optimizer="adagrad", sharding=None, **fields):
        super().__init__()
        torch.manual_seed(1)
        service = service | {"sharding": sharding or {}}
        tables = [bag_config("t", ["a"], **fields), bag_config("u", ["b"], 16)]
        self.bags = EmbeddingBagCollection(tables, **service)
        self.rows = EmbeddingCollection([config("v", ["a"])], **service)
        self.dense = nn.Linear(24, 1)
        for module in (self.bags, self.rows):
            apply_optimizer(module, OPTIMIZERS[optimizer], lr=0.1)
            module.connect()

    def forward(self, inputs):
        rows = self.rows(inputs)["a"].values()
        return self.dense(self.bags(inputs).values()).square().sum() + rows.square().sum()


def train(model, optimizer, seeds):
    for seed in seeds:
        optimizer.zero_grad()
        model(features(LENGTHS, seed=seed)).backward()
        optimizer.step()


def all_bits(model):
    """Return everything that a model consists of, as the service has it."""
    found = dict(model.dense.state_dict())
    client = model.bags.site.client
    for table in ("t", "u", "v"):
        found[table] = torch.from_numpy(client.read_rows(table, np.arange(50)))
        found[f"{table} state"] = torch.from_numpy(client.read_state(table, np.arange(50)))
    return {name: value.clone() for name, value in found.items()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def drop_tables(cluster, client):
    for table in cluster.admin.plan()["tables"]:
        cluster.admin.drop_table(table["spec"]["name"])
    client.refresh_plan()


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Cut every table into several chunks."""
    monkeypatch.setattr(remote_tensor, "CHUNK_BYTES", 7 * 8 * 4)


@pytest.fixture
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(
    service, cluster, tmp_path, optimizer
):
    sharding = {"t": "row_wise", "u": "column_wise", "v": "table_wise"}
    model = Model(service, optimizer, sharding)
    dense = torch.optim.Adam(model.dense.parameters(), lr=0.1)
    train(model, dense, range(4))
    embla.checkpoint.save(model, tmp_path, optimizer=dense)
    saved = all_bits(model)
    train(model, dense, range(4, 8))
    expected = all_bits(model)

    drop_tables(cluster, service["client"])
    resumed = Model(service, optimizer, sharding)
    dense = torch.optim.Adam(resumed.dense.parameters(), lr=0.5)
    embla.checkpoint.load(resumed, tmp_path, optimizer=dense)
    assert_equal(all_bits(resumed), saved)
    assert resumed.bags.site.step == 4
    train(resumed, dense, range(4, 8))
    assert_equal(all_bits(resumed), expected)


def test_a_checkpoint_loads_onto_another_plan(service, cluster, tmp_path):
    model = Model(service, sharding={"t": "row_wise", "u": "row_wise"})
    train(model, torch.optim.SGD(model.dense.parameters(), lr=0.1), range(4))
    expected = all_bits(model)
    embla.checkpoint.save(model, tmp_path)
    drop_tables(cluster, service["client"])
    other = Model(service, sharding={"t": "column_wise", "u": "table_wise"})
    embla.checkpoint.load(other, tmp_path)
    assert_equal(all_bits(other), expected)
    assert other.bags.plan() == {"t": "column_wise", "u": "table_wise"}


def test_stock_tools_read_a_checkpoint(service, tmp_path):
    model = Model(service)
    expected = all_bits(model)["t"]
    embla.checkpoint.save(model, tmp_path / "dcp")
    target = {WEIGHT: torch.zeros(50, 8)}
    dcp.load(target, checkpoint_id=tmp_path / "dcp")
    assert torch.equal(target[WEIGHT], expected)
    dcp_to_torch_save(tmp_path / "dcp", tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(state["model"]["bags.embedding_bags.t.weight"], expected)
    momentum = state["optimizer"]["state"]["bags.embedding_bags.t.weight"]["t.momentum1"]
    assert momentum.shape == (50, 8)


def test_memory_holds_a_chunk_and_not_a_table(service, tmp_path, monkeypatch):
    reads = []
    read = remote_tensor.RemoteTensor.read
    monkeypatch.setattr(
        remote_tensor.RemoteTensor,
        "read",
        lambda self, begin, end: (reads.append(end - begin), read(self, begin, end))[1],
    )
    embla.checkpoint.save(Model(service), tmp_path)
    assert max(reads) <= 56
    assert reads.count(7) > 10


def test_weights_of_other_formats_are_saved_as_they_are(service, cluster, tmp_path):
    model = Model(service, data_type=DataType.BF16)
    train(model, torch.optim.SGD(model.dense.parameters(), lr=0.1), range(2))
    expected = all_bits(model)
    embla.checkpoint.save(model, tmp_path)
    metadata = dcp.FileSystemReader(tmp_path).read_metadata()
    assert metadata.state_dict_metadata[WEIGHT].properties.dtype == torch.bfloat16
    drop_tables(cluster, service["client"])
    other = Model(service, data_type=DataType.BF16)
    embla.checkpoint.load(other, tmp_path)
    assert_equal(all_bits(other), expected)


def torchrec_states(kind, rows):
    """Return a table's state as TorchRec's ranks hold it."""
    if kind == "tensor":
        return rows
    if kind == "dtensor":
        return distribute_tensor(rows, init_device_mesh("cpu", (1,)), [Shard(0)])
    from torch.distributed._shard.sharded_tensor import Shard as LocalShard

    shards = [
        LocalShard.from_tensor_and_offsets(rows[a:b, c:d].contiguous(), [a, c], 0)
        for a, b in ((0, 30), (30, 50))
        for c, d in ((0, 4), (4, 8))
    ]
    return ShardedTensor._init_from_local_shards(shards, 50, 8)


@pytest.mark.parametrize("kind", ["tensor", "dtensor", "sharded tensor"])
def test_a_checkpoint_of_torchrec_loads_however_it_was_sharded(
    service, tmp_path, process_group, kind
):
    module = EmbeddingBagCollection([bag_config("t", ["a"])], **service)
    apply_optimizer(module, OPTIMIZERS["adagrad"], lr=0.1)
    model = nn.ModuleDict({"bags": module})
    fqn = "bags.embedding_bags.t.weight"
    rows, momentum = torch.rand(50, 8), torch.rand(50, 8)
    saved = {
        "model": {fqn: torchrec_states(kind, rows)},
        "optimizer": {"state": {fqn: {"t.momentum1": torchrec_states(kind, momentum)}}},
    }
    dcp.save(saved, checkpoint_id=tmp_path)
    embla.checkpoint.load(model, tmp_path)
    client = service["client"]
    assert torch.equal(torch.from_numpy(client.read_rows("t", np.arange(50))), rows)
    assert torch.equal(torch.from_numpy(client.read_state("t", np.arange(50))), momentum)


def test_a_checkpoint_of_a_trained_sharded_torchrec_model_loads(service, tmp_path, process_group):
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import (
        EmbeddingShardingPlanner,
        ParameterConstraints,
        Topology,
    )

    theirs = nn.ModuleDict(
        {
            "bags": torchrec.EmbeddingBagCollection(
                [bag_config("t", ["a"])], device=torch.device("meta")
            )
        }
    )
    apply_optimizer(theirs, OPTIMIZERS["rowwise_adagrad"], lr=0.1)
    constraints = {
        "t": ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])
    }
    topology = Topology(world_size=1, compute_device="cpu")
    sharders = [EmbeddingBagCollectionSharder()]
    plan = EmbeddingShardingPlanner(topology, constraints=constraints).plan(theirs, sharders)
    sharded = DistributedModelParallel(
        theirs, device=torch.device("cpu"), plan=plan, sharders=sharders
    )
    inputs = features({"a": [2, 0, 1]})
    sharded.module["bags"](inputs).wait().values().square().sum().backward()
    saved = {"model": sharded.state_dict(), "optimizer": sharded.fused_optimizer.state_dict()}
    dcp.save(saved, checkpoint_id=tmp_path)

    module = EmbeddingBagCollection([bag_config("t", ["a"])], **service)
    apply_optimizer(module, OPTIMIZERS["rowwise_adagrad"], lr=0.1)
    embla.checkpoint.load(nn.ModuleDict({"bags": module}), tmp_path)
    expected = sharded.module["bags"](inputs).wait().values()
    assert torch.equal(module(inputs).values(), expected)
    (shard,) = saved["optimizer"]["state"]["bags.embedding_bags.t.weight"][
        "t.momentum1"
    ].local_shards()
    state = torch.from_numpy(service["client"].read_state("t", np.arange(50)))
    assert torch.equal(state.ravel(), shard.tensor.ravel())


def test_a_round_trip_through_torchrecs_collection_changes_no_bit(service):
    module = EmbeddingBagCollection([bag_config("t", ["a"]), bag_config("u", ["b"])], **service)
    apply_optimizer(module)
    copy_rows(module, to_local(module))
    local = to_local(module)
    for table in local.embedding_bags.values():
        table.weight.data.uniform_()
    module.load_state_dict(local.state_dict())
    for (name, ours), theirs in zip(
        to_local(module).state_dict().items(), local.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), name


def test_a_state_dict_of_another_shape_is_refused(service):
    module = EmbeddingBagCollection([bag_config("t", ["a"])], **service)
    with pytest.raises(RuntimeError, match=r"the table is \(50, 8\)"):
        module.load_state_dict({"embedding_bags.t.weight": torch.zeros(50, 4)})
    with pytest.raises(RuntimeError, match=r"call connect\(\)"):
        module.load_state_dict({"embedding_bags.t.weight": torch.zeros(50, 8)})
    module.load_state_dict(module.state_dict())


def test_a_checkpoint_of_another_shape_is_refused(service, cluster, tmp_path):
    embla.checkpoint.save(Model(service), tmp_path)
    drop_tables(cluster, service["client"])
    other = Model(service, num_embeddings=60)
    with pytest.raises(ValueError, match=r"\(50, 8\), table t has \(60, 8\)"):
        embla.checkpoint.load(other, tmp_path)


def test_a_checkpoint_that_lacks_a_table_is_refused(service, tmp_path):
    model = Model(service)
    dcp.save({"model": {"dense.weight": torch.zeros(1, 24)}}, checkpoint_id=tmp_path)
    with pytest.raises(RuntimeError, match=r"the checkpoint lacks model\.dense\.bias, model\.bags"):
        embla.checkpoint.load(model, tmp_path)


def test_weights_load_without_optimizer_state(service, tmp_path):
    model = Model(service)
    rows = {f"bags.embedding_bags.{t}.weight": torch.rand(50, d) for t, d in (("t", 8), ("u", 16))}
    rows["rows.embeddings.v.weight"] = torch.rand(50, 8)
    saved = {"model": dict(model.dense.state_dict(prefix="dense.")) | rows}
    dcp.save(saved, checkpoint_id=tmp_path)
    embla.checkpoint.load(model, tmp_path, with_optimizer_state=False)
    assert torch.equal(all_bits(model)["t"], rows["bags.embedding_bags.t.weight"])


def test_small_tables_are_read_into_a_state_dict(service):
    model = Model(service)
    state = embla.checkpoint.state_dict(model)
    assert torch.equal(state["bags.embedding_bags.t.weight"], all_bits(model)["t"])
    local = to_local(model)
    local.load_state_dict(state)
    with pytest.raises(ValueError, match="bytes here, 100 are allowed"):
        embla.checkpoint.state_dict(model, bytes_max=100)


def test_a_state_dict_can_have_dtensors(service, process_group, tmp_path):
    model = Model(service)
    state = embla.checkpoint.state_dict(model, dtensor=True)
    weight = state["bags.embedding_bags.t.weight"]
    assert isinstance(weight, DTensor)
    assert torch.equal(weight.to_local(), all_bits(model)["t"])
    dcp.save({"model": state}, checkpoint_id=tmp_path)
    embla.checkpoint.load(model, tmp_path, with_optimizer_state=False)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_safetensors_both_ways(service, cluster, tmp_path, optimizer):
    pytest.importorskip("safetensors")
    from safetensors.torch import load_file

    model = Model(service, optimizer)
    train(model, torch.optim.SGD(model.dense.parameters(), lr=0.1), range(3))
    expected = all_bits(model)
    embla.checkpoint.save_safetensors(model, tmp_path)
    table = load_file(tmp_path / "bags.embedding_bags.t.weight.safetensors")
    assert torch.equal(table["weight"], expected["t"])
    drop_tables(cluster, service["client"])
    other = Model(service, optimizer)
    embla.checkpoint.load_safetensors(other, tmp_path)
    assert_equal(all_bits(other), expected)
    assert other.bags.site.step == 3


def test_a_safetensors_file_of_another_shape_is_refused(service, cluster, tmp_path):
    pytest.importorskip("safetensors")
    embla.checkpoint.save_safetensors(Model(service), tmp_path)
    drop_tables(cluster, service["client"])
    with pytest.raises(ValueError, match=r"\(50, 8\), table t has \(60, 8\)"):
        embla.checkpoint.load_safetensors(Model(service, num_embeddings=60), tmp_path)


def test_modules_without_torchrec_are_saved_by_torchs_names(service, cluster, tmp_path):
    client = service["client"]
    for name in ("t", "u", "v"):
        cluster.admin.create_table(embla.TableSpec(name, 50, 8, optimizer=embla.Adagrad(lr=0.1)))
    client.refresh_plan()
    pairs = [embla.torch.Feature("u", "sum", 8), embla.torch.Feature("v", "sum", 8)]
    model = nn.ModuleDict(
        {
            "bag": embla.torch.EmbeddingBag(client, "t"),
            "set": embla.torch.EmbeddingBagSet(client, pairs),
        }
    )
    model["bag"](torch.tensor([[1, 2]])).sum().backward()
    before = client.read_rows("t", np.arange(50))
    embla.checkpoint.save(model, tmp_path)
    names = dcp.FileSystemReader(tmp_path).read_metadata().state_dict_metadata
    assert {"model.bag.weight", "model.set.u.weight", "model.set.v.weight"} <= set(names)
    model["bag"](torch.tensor([[1, 2]])).sum().backward()
    embla.checkpoint.load(model, tmp_path)
    assert (client.read_rows("t", np.arange(50)) == before).all()
    assert model["bag"].site.step == 1
