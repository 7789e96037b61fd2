"""Two towers for retrieval: users and items whose vectors' product says who likes what.

    EMBLA_COORDINATOR=host:7070 EMBLA_ADMIN=host:7071 python two_tower.py
    ... python two_tower.py --ratings ratings.csv

Without a file the ratings are generated from hidden vectors, so that the best possible AUC is
known. A file has the columns user, item and rating, with a header; users and items are any words
or numbers, and ratings of 4 and more count as likes.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

import embla
import embla.torch

DIM, BATCH = 16, 512


class TwoTower(nn.Module):
    """A row per user and per item, each through a tower of its own."""

    def __init__(self, client: embla.Client):
        super().__init__()
        self.users = embla.torch.Embedding(client, "two_tower.users", update_mode="async")
        self.items = embla.torch.Embedding(client, "two_tower.items", update_mode="async")
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, DIM)) for _ in range(2)
        )

    def score(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        vectors = self.users(users), self.items(items)
        towers = [x + tower(x) for x, tower in zip(vectors, self.towers, strict=True)]
        return (towers[0] * towers[1]).sum(1)

    def forward(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.score(batch[0], batch[1])
        likes = batch[2].float()
        return nn.functional.binary_cross_entropy_with_logits(scores, likes), scores

    def prefetch(self, batch: torch.Tensor) -> None:
        self.users.prefetch(batch[0])
        self.items.prefetch(batch[1])


def generate(users: int, items: int, ratings: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (user, item, like) as columns, and the chance of each like."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(users, 4)), rng.normal(size=(items, 4))
    user, item = rng.integers(0, users, ratings), rng.integers(0, items, ratings)
    chance = 1 / (1 + np.exp(-(hidden[0][user] * hidden[1][item]).sum(1) * 1.5))
    return np.stack([user, item, rng.random(ratings) < chance]).astype(np.int64), chance


def read(path: Path) -> np.ndarray:
    """Return (user, item, like) as columns, users and items numbered."""
    lines = list(csv.DictReader(path.open()))
    numbered = [np.unique([line[c] for line in lines], return_inverse=True)[1]
                for c in ("user", "item")]  # fmt: skip
    likes = [float(line["rating"]) >= 4 for line in lines]
    order = np.random.default_rng(0).permutation(len(lines))
    return np.stack([*numbered, likes]).astype(np.int64)[:, order]


def auc(scores: np.ndarray, likes: np.ndarray) -> float:
    """Return the chance that a liked item has a higher score than one that is not."""
    ranks = np.empty(len(scores))
    ranks[scores.argsort()] = np.arange(1, len(scores) + 1)
    positive = likes.sum()
    excess = ranks[likes == 1].sum() - positive * (positive + 1) / 2
    return float(excess / (positive * (len(likes) - positive)))


def create_tables(admin: embla.Admin, users: int, items: int) -> None:
    for name, rows in (("two_tower.users", users), ("two_tower.items", items)):
        spec = embla.TableSpec(
            name, rows, DIM, optimizer=embla.Adagrad(lr=0.1), init=embla.Normal(0.0, 0.1)
        )
        admin.create_table(spec, "row_wise")


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ratings", type=Path, help="a file; without it ratings are generated")
    parser.add_argument("--count", type=int, default=200_000, help="of generated ratings")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--staleness", type=int, choices=(0, 1), default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    if options.ratings:
        data, best = read(options.ratings), float("nan")
        users, items = int(data[0].max()) + 1, int(data[1].max()) + 1
    else:
        users, items = options.count // 100, options.count // 200
        data, chance = generate(users, items, options.count)
    cut = data.shape[1] * 9 // 10
    if not options.ratings:
        best = auc(chance[cut:], data[2, cut:])
    create_tables(embla.Admin(), users, items)
    with embla.connect() as client:
        model = TwoTower(client)
        rows = embla.torch.FusedOptimizer(model, lr=0.1)
        decay = torch.optim.lr_scheduler.ExponentialLR(rows, gamma=0.5)
        dense = torch.optim.Adam(model.towers.parameters(), lr=1e-3)
        pipeline = embla.torch.TrainPipeline(
            model, dense, prefetch=model.prefetch, staleness=options.staleness
        )
        for epoch in range(options.epochs):
            order = np.random.default_rng(epoch).permutation(cut)
            steps = cut // BATCH
            batches = (torch.from_numpy(data[:, order[i * BATCH : (i + 1) * BATCH]])
                       for i in range(steps))  # fmt: skip
            for _ in tqdm(range(steps), desc=f"epoch {epoch}"):
                pipeline.progress(batches)
            rows.step()
            decay.step()
        with torch.no_grad():
            test = torch.from_numpy(data[:, cut:])
            result = auc(model.score(test[0], test[1]).numpy(), data[2, cut:])
    print(f"test AUC {result:.4f}, best possible {best:.4f}")
    return result, best


if __name__ == "__main__":
    main()
