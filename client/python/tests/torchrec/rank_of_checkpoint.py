"""One rank of test_checkpoint_ranks.py: ``rank_of_checkpoint.py VERB FOLDER``, under torchrun.

The tables exist; the coordinator is EMBLA_COORDINATOR. Every check is an assertion.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.tensor import DTensor

import embla
import embla.checkpoint
import embla.torch
from embla.checkpoint import remote_tensor


def make_model(client: embla.Client) -> nn.ModuleDict:
    torch.manual_seed(1)
    pairs = [embla.torch.Feature("odd", "sum", 8), embla.torch.Feature("one", "sum", 8)]
    return nn.ModuleDict(
        {
            "set": embla.torch.EmbeddingBagSet(client, pairs),
            "any": embla.torch.Embedding(client, "any"),
            "dense": nn.Linear(8, 1),
        }
    )


def check_dtensors(client: embla.Client, model: nn.ModuleDict, folder: Path) -> None:
    state = embla.checkpoint.state_dict(model, dtensor=True)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for table, rows in (("odd", 51), ("one", 1)):
        weight = state[f"set.{table}.weight"]
        assert isinstance(weight, DTensor)
        expected = torch.from_numpy(client.read_rows(table, np.arange(rows)))
        shares = expected.chunk(ranks)
        own = shares[rank] if rank < len(shares) else expected[:0]
        assert torch.equal(weight.to_local(), own), table
        assert torch.equal(weight.full_tensor(), expected), table
    ids = state["any.weight.ids"].numpy()
    expected = torch.from_numpy(client.read_rows("any", ids))
    assert torch.equal(state["any.weight"].full_tensor(), expected)
    dcp.save({"model": state}, checkpoint_id=folder)


def check_state(model: nn.ModuleDict, folder: Path) -> None:
    """Load what the stock planner saved of DTensors."""
    embla.checkpoint.load(model, folder, with_optimizer_state=False)


def main() -> None:
    verb, folder = sys.argv[1], Path(sys.argv[2])
    dist.init_process_group("gloo")
    remote_tensor.CHUNK_BYTES = 7 * 8 * 4  # Every table in several chunks, for both ranks.
    with embla.connect() as client:
        model = make_model(client)
        if verb == "dtensor":
            check_dtensors(client, model, folder)
        elif verb == "save":
            embla.checkpoint.save(model, folder)
        elif verb == "load":
            embla.checkpoint.load(model, folder)
        else:
            check_state(model, folder)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
