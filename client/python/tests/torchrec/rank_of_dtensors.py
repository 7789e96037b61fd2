"""One rank of test_dtensor_ranks.py: ``rank_of_dtensors.py save|load FOLDER``, under torchrun.

A model that TorchRec has cut over two ranks, and whose state has DTensors (``output_dtensor``).
``save`` trains it and saves a checkpoint in FOLDER; ``load`` saves one of the service's tables
there, with DTensors too, and loads it into TorchRec's model. Both write what each rank then has to
FOLDER/shards.RANK.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torchrec
from builders import apply_optimizer, bag_config, features
from torch import nn
from torch.distributed.tensor import DTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import (
    column_wise,
    construct_module_sharding_plan,
    row_wise,
    table_wise,
)
from torchrec.distributed.shards_wrapper import LocalShardsWrapper
from torchrec.distributed.types import ShardingEnv, ShardingPlan

import embla.checkpoint
import embla.torchrec

TABLES = {"t": "a", "u": "b", "v": "c"}  # Cut by table, by row and by column.
OPTIMIZER = torch.optim.Adagrad


def configs() -> list[Any]:
    return [bag_config(table, [feature]) for table, feature in TABLES.items()]


def cut_model() -> DistributedModelParallel:
    bags = torchrec.EmbeddingBagCollection(configs(), device=torch.device("meta"))
    model = nn.ModuleDict({"bags": bags})
    apply_optimizer(model, OPTIMIZER)
    sharder = EmbeddingBagCollectionSharder()
    cuts = {"t": table_wise(rank=1), "u": row_wise(), "v": column_wise(ranks=[0, 1])}
    plan = construct_module_sharding_plan(
        bags, cuts, sharder, local_size=2, world_size=2, device_type="cpu"
    )
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    env.output_dtensor = True
    return DistributedModelParallel(
        model, env, torch.device("cpu"), ShardingPlan({"bags": plan}), [sharder]
    )


def state_of(model: DistributedModelParallel) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizer": model.fused_optimizer.state_dict()}


def train(model: DistributedModelParallel) -> None:
    for step in range(3):
        lengths = {feature: [2, 0, 1, 3] for feature in TABLES.values()}
        inputs = features(lengths, seed=10 * step + dist.get_rank())
        model.module["bags"](inputs).wait().values().square().sum().backward()


def save_service(folder: Path) -> None:
    """Save the service's tables as DTensors, of which each rank reads its share."""
    ours = embla.torchrec.EmbeddingBagCollection(configs())
    state = embla.checkpoint.state_dict(nn.ModuleDict({"bags": ours}), dtensor=True)
    assert all(isinstance(weight, DTensor) for weight in state.values())
    dcp.save({"model": state}, checkpoint_id=folder)


def write_shards(state: dict[str, Any], path: Path) -> None:
    """Write each table's weights and Adagrad's sums: lists of offsets and tensors."""
    shards = {}
    for table in TABLES:
        fqn = f"bags.embedding_bags.{table}.weight"
        shards[table] = [shards_of(state["model"][fqn]), []]
        if fqn in state["optimizer"]["state"]:  # A rank without rows of a table has no sums of it.
            sums = state["optimizer"]["state"][fqn][f"{table}.momentum1"]
            shards[table][1] = shards_of(sums)
    torch.save(shards, path)


def shards_of(tensor: Any) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    """Return offsets and tensors of this rank's part."""
    assert isinstance(tensor, DTensor)
    own = tensor.to_local()
    assert isinstance(own, LocalShardsWrapper)
    # An empty part has an offset, too.
    return [(tuple(o), s) for o, s in zip(own.local_offsets(), own.local_shards(), strict=False)]


def main() -> None:
    verb, folder = sys.argv[1], Path(sys.argv[2])
    dist.init_process_group("gloo")
    model = cut_model()
    if verb == "save":
        train(model)
        dcp.save(state_of(model), checkpoint_id=folder)
    else:
        save_service(folder)
        dcp.load({"model": model.state_dict()}, checkpoint_id=folder)
    write_shards(state_of(model), folder / f"shards.{dist.get_rank()}")
    dist.barrier()
    if verb == "load":
        embla.get_default_client().close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
