"""Two towers for retrieval: users and items whose vectors' product says who likes what.

    EMBLA_COORDINATOR=host:7070 EMBLA_ADMIN=host:7071 python two_tower.py
    ... python two_tower.py --ratings ratings.csv
    torchrun --nproc-per-node 2 two_tower.py --sync --checkpoint /tmp/two_tower

Without a file the ratings are generated from hidden vectors, so that the best possible AUC is
known. A file has the columns user, item and rating, with a header; users and items are any words
or numbers, and ratings of 4 and more count as likes. A resumed run goes on after the last epoch.
"""

import argparse
import csv
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

import embla.checkpoint
import embla.torch

DIM, BATCH = 32, 512  # A batch of all ranks, however many there are.


class TwoTower(nn.Module):
    """A row per user and per item, each through a tower of its own."""

    def __init__(self, client: embla.Client, world: int):
        super().__init__()
        options = {"update_mode": "async", "grad_scale": 1 / world}
        self.users = embla.torch.Embedding(client, "two_tower.users", **options)
        self.items = embla.torch.Embedding(client, "two_tower.items", **options)
        towers = [nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, DIM)) for _ in "ui"]
        self.towers = nn.ModuleList(towers)
        self.register_buffer("epochs", torch.tensor(0))  # A checkpoint has it.

    def forward(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        vectors = self.users(batch[0]), self.items(batch[1])
        towers = [x + tower(x) for x, tower in zip(vectors, self.towers, strict=True)]
        scores = (towers[0] * towers[1]).sum(1)
        return nn.functional.binary_cross_entropy_with_logits(scores, batch[2].float()), scores

    def prefetch(self, batch: torch.Tensor) -> None:
        self.users.prefetch(batch[0])
        self.items.prefetch(batch[1])


def generate(users: int, items: int, ratings: int) -> tuple[np.ndarray, float]:
    """Return (user, item, like) as columns, and the best AUC that their last tenth allows."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(users, 4)), rng.normal(size=(items, 4))
    user, item = rng.integers(0, users, ratings), rng.integers(0, items, ratings)
    chance = 1 / (1 + np.exp(-(hidden[0][user] * hidden[1][item]).sum(1) * 1.5))
    like = rng.random(ratings) < chance
    best = auc(chance[ratings * 9 // 10 :], like[ratings * 9 // 10 :])
    return np.stack([user, item, like]).astype(np.int64), best


def read(path: Path) -> tuple[np.ndarray, float]:
    """Return (user, item, like) as columns, users and items numbered; nobody knows the best AUC."""
    lines = list(csv.DictReader(path.open()))
    columns = [[line[name] for line in lines] for name in ("user", "item")]
    numbered = [np.unique(column, return_inverse=True)[1] for column in columns]
    likes = [float(line["rating"]) >= 4 for line in lines]
    return np.random.default_rng(0).permutation(np.stack([*numbered, likes]), axis=1), float("nan")


def auc(scores: np.ndarray, likes: np.ndarray) -> float:
    """Return the chance that a liked item has a higher score than one that is not."""
    ranks = np.empty(len(scores))
    ranks[scores.argsort()] = np.arange(1, len(scores) + 1)
    positive = likes.sum()
    excess = ranks[likes == 1].sum() - positive * (positive + 1) / 2
    return float(excess / (positive * (len(likes) - positive)))


def create_tables(admin: embla.Admin, users: int, items: int, sync: bool) -> None:
    existing = {table["spec"]["name"] for table in admin.plan()["tables"]}
    for name, rows in (("two_tower.users", users), ("two_tower.items", items)):
        if name not in existing:
            spec = embla.TableSpec(name, rows, DIM, optimizer=embla.Adagrad(lr=0.1),
                                   init=embla.Normal(0.0, 0.1), sync=sync)  # fmt: skip
            admin.create_table(spec, "row_wise")


def evaluate(model: TwoTower, test: torch.Tensor) -> float:
    embla.torch.flush(model)
    if dist.is_initialized():
        dist.barrier()  # Now the updates of all ranks are in the rows.
    return auc(torch.no_grad()(model)(test)[1].numpy(), test[2].numpy())


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ratings", type=Path, help="a file; without it ratings are generated")
    parser.add_argument("--count", type=int, default=200_000, help="of generated ratings")
    parser.add_argument("--epochs", type=int, default=3, help="in all, with those of a checkpoint")
    parser.add_argument("--staleness", type=int, choices=(0, 1), default=0)
    parser.add_argument("--sync", action="store_true", help="one step per batch of all ranks")
    parser.add_argument("--checkpoint", type=Path, help="resumed from if it exists, and written")
    options = parser.parse_args(arguments)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    generated = options.count // 100, options.count // 200, options.count
    data, best = read(options.ratings) if options.ratings else generate(*generated)
    cut = data.shape[1] * 9 // 10
    if rank == 0:
        create_tables(embla.Admin(), *(data[:2].max(1) + 1).tolist(), options.sync)
    if world > 1:
        dist.barrier()
    with embla.connect(**embla.torch.rank_of_process()) as client:
        model = TwoTower(client, world)
        dense = torch.optim.Adam(model.towers.parameters(), lr=1e-3)
        if options.checkpoint and options.checkpoint.exists():
            embla.checkpoint.load(model, options.checkpoint, optimizer=dense)
        steps = cut // BATCH
        done = int(model.epochs)
        rows = embla.torch.FusedOptimizer(model, lr=0.1 * 0.5**done)
        decay = torch.optim.lr_scheduler.ExponentialLR(rows, gamma=0.5)
        trained = DistributedDataParallel(model, broadcast_buffers=False) if world > 1 else model
        pipeline = embla.torch.TrainPipeline(trained, dense, prefetch=model.prefetch,
                                             staleness=options.staleness)  # fmt: skip
        for epoch in range(done, options.epochs):
            order = np.random.default_rng(epoch).permutation(cut)[: steps * BATCH]
            parts = order.reshape(steps, BATCH)[:, rank::world]
            batches = (torch.from_numpy(data[:, part]) for part in parts)
            for _ in tqdm(range(steps), desc=f"epoch {epoch}", disable=rank > 0):
                pipeline.progress(batches)
            decay.step()
            model.epochs += 1
            if options.checkpoint:
                embla.checkpoint.save(model, options.checkpoint, optimizer=dense)
        result = evaluate(model, torch.from_numpy(data[:, cut:]))
    if world > 1:
        dist.destroy_process_group()
    if rank == 0:
        print(f"test AUC {result:.4f}, best possible {best:.4f}")
    return result, best


if __name__ == "__main__":
    main()
