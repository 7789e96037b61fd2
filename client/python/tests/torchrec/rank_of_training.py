"""One rank of test_training_ranks.py: ``rank_of_training.py OPTIMIZER FILE``, under torchrun.

Trains a model of TorchRec through the service, with DistributedDataParallel and ``sync``. The first
rank writes rows and dense weights to FILE. The addresses of the service are in the environment.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torchrec
from builders import apply_optimizer, bag_config, features
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import embla
import embla.torch
from embla.torchrec import wrap

RANKS, STEPS, BAGS = 2, 20, 8
# Optimizers whose results depend on a factor of the gradient: Adagrad only where sums do not begin
# at zero.
OPTIMIZERS: dict[str, tuple[Any, dict[str, float]]] = {
    "sgd": (torch.optim.SGD, {"lr": 10.0}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "initial_accumulator_value": 1e-3}),
    "rowwise_adagrad": (torchrec.optim.RowWiseAdagrad, {"lr": 0.1}),
}


class Model(nn.Module):
    """Two tables and a dense part; the same in every process."""

    def __init__(self, optimizer: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.bags = torchrec.EmbeddingBagCollection(
            [bag_config("t", ["a", "b"]), bag_config("u", ["c"])]
        )
        self.dense = nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 1))
        kind, kwargs = OPTIMIZERS[optimizer]
        apply_optimizer(self.bags, kind, **kwargs)

    def forward(self, inputs: torchrec.KeyedJaggedTensor) -> torch.Tensor:
        return self.dense(self.bags(inputs).values()).square().mean()


def dense_optimizer(model: Model) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.dense.parameters(), lr=0.1)


def batch(step: int, rank: int) -> torchrec.KeyedJaggedTensor:
    """Return a rank's part of a batch; now and then it has no ids of a table."""
    rng = np.random.default_rng((step, rank))
    lengths = {key: rng.integers(0, 4, BAGS).tolist() for key in "abc"}
    if (step + rank) % 5 == 0:
        lengths["c"] = [0] * BAGS
    return features(lengths, seed=100 * step + rank)


def main() -> None:
    optimizer, path = sys.argv[1:]
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    assert ranks == RANKS
    assert embla.torch.rank_of_process() == {"rank": rank, "ranks": ranks}
    model = wrap(Model(optimizer), sync=True, grad_scale=1 / ranks)
    for turn in range(ranks):  # The first rank creates the tables and writes their rows.
        if turn == rank:
            model.bags.connect()
        dist.barrier()
    trained, dense = DistributedDataParallel(model), dense_optimizer(model)
    for step in range(STEPS):
        dense.zero_grad()
        trained(batch(step, rank)).backward()
        dense.step()
    assert model.bags.site.step == STEPS
    dist.barrier()
    if rank == 0:
        client = model.bags.site.client
        rows = {t: torch.from_numpy(client.read_rows(t, np.arange(50))) for t in ("t", "u")}
        torch.save({"rows": rows, "dense": model.dense.state_dict()}, path)
    dist.barrier()
    embla.get_default_client().close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
