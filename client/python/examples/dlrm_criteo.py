"""DLRM on click logs in Criteo's format: who clicks on which advertisement?

    EMBLA_COORDINATOR=host:7070 EMBLA_ADMIN=host:7071 python dlrm_criteo.py train.txt
    torchrun --nproc-per-node 2 dlrm_criteo.py train.txt --checkpoint /tmp/criteo

A line has a label, 13 integers and 26 categories of up to eight hexadecimal digits, with tabs
between them; integers and categories may be missing. Files are read batch by batch, never as a
whole; lines at the end that fill no batch are left out. A resumed run goes on after the last epoch.
"""

import argparse
import itertools
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

import embla
import embla.checkpoint
import embla.torch

INTEGERS, CATEGORIES = 13, 26
TABLES = [f"criteo.c{number}" for number in range(1, CATEGORIES + 1)]


class Dense(nn.Module):
    """Integers through an MLP; all dot products with the rows through another MLP."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim
        self.integers = nn.Sequential(nn.Linear(INTEGERS, 64), nn.ReLU(), nn.Linear(64, dim))
        pairs = (CATEGORIES + 1) * CATEGORIES // 2
        self.over = nn.Sequential(nn.Linear(dim + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.triu_indices(CATEGORIES + 1, CATEGORIES + 1, 1))

    def forward(self, integers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        dense = self.integers(integers)
        vectors = torch.cat([dense[:, None], rows.view(-1, CATEGORIES, self.dim)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.over(torch.cat([dense, products], dim=1)).squeeze(1)


class Dlrm(nn.Module):
    def __init__(self, client: embla.Client, dim: int, world: int):
        super().__init__()
        features = [embla.torch.Feature(table, "sum", dim) for table in TABLES]
        self.rows = embla.torch.EmbeddingBagSet(client, features, grad_scale=1 / world)
        self.dense = Dense(dim)

    def forward(self, integers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        lengths = torch.ones(ids.numel(), dtype=torch.int32)
        return self.dense(integers, self.rows(ids.t().flatten(), lengths))


def parse(line: str, rows: int) -> tuple[float, list[float], list[int]]:
    """Return label, integers and ids; a missing integer is 0, a missing category is row 0."""
    fields = line.rstrip("\n").split("\t")
    if len(fields) != 1 + INTEGERS + CATEGORIES:
        raise ValueError(f"a line has {len(fields)} fields, not {1 + INTEGERS + CATEGORIES}")
    integers = [max(float(field or 0), 0.0) for field in fields[1 : 1 + INTEGERS]]
    ids = [1 + int(c, 16) % (rows - 1) if c else 0 for c in fields[1 + INTEGERS :]]
    return float(fields[0]), integers, ids


def read(path: Path, rows: int, batch: int, rank: int = 0, world: int = 1):
    """Yield (integers, ids, labels) of this rank's part of each batch."""
    with path.open() as file:
        while len(lines := list(itertools.islice(file, batch))) == batch:
            part = [parse(line, rows) for line in lines[rank::world]]
            labels, integers, ids = zip(*part, strict=True)
            yield torch.tensor(integers).log1p(), torch.tensor(ids), torch.tensor(labels)


def auc(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the chance that a positive has a higher score than a negative."""
    ranks = torch.empty(len(scores), dtype=torch.float64)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    positive = labels.sum().double()
    excess = ranks[labels == 1].sum() - positive * (positive + 1) / 2
    return (excess / (positive * (len(labels) - positive))).item()


def create_tables(rows: int, dim: int) -> None:
    with embla.Admin() as admin:
        existing = {table["spec"]["name"] for table in admin.plan()["tables"]}
        for table in TABLES:
            if table not in existing:
                spec = embla.TableSpec(table, rows, dim, optimizer=embla.RowwiseAdagrad(lr=0.05))
                admin.create_table(spec, "row_wise")


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser()
    parser.add_argument("train", type=Path)
    parser.add_argument("--test", type=Path, help="a file for the AUC; else train")
    parser.add_argument("--rows", type=int, default=100_000, help="per table; hashed")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1024, help="lines per step of all ranks")
    parser.add_argument("--epochs", type=int, default=1, help="in all, with those of a checkpoint")
    parser.add_argument("--checkpoint", type=Path, help="resumed from if it exists, and written")
    options = parser.parse_args(arguments)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    if rank == 0:
        create_tables(options.rows, options.dim)
    if world > 1:
        dist.barrier()
    with embla.connect() as client:
        model = Dlrm(client, options.dim, world)
        optimizer = torch.optim.Adam(model.dense.parameters(), lr=1e-3)
        if options.checkpoint and options.checkpoint.exists():
            embla.checkpoint.load(model, options.checkpoint, optimizer=optimizer)
        trained = DistributedDataParallel(model) if world > 1 else model
        with options.train.open() as file:
            steps = sum(1 for _ in file) // options.batch
        for epoch in range(model.rows.site.step // steps, options.epochs):
            batches = read(options.train, options.rows, options.batch, rank, world)
            batches = tqdm(batches, desc=f"epoch {epoch}", total=steps, disable=rank > 0)
            for integers, ids, labels in batches:
                optimizer.zero_grad()
                logits = trained(integers, ids)
                nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
                optimizer.step()
            if options.checkpoint:
                embla.checkpoint.save(model, options.checkpoint, optimizer=optimizer)
        if world > 1:
            dist.barrier()  # Now the updates of all ranks are in the rows.
        with torch.no_grad():
            test = read(options.test or options.train, options.rows, options.batch)
            parts = [(model(integers, ids), labels) for integers, ids, labels in test]
        result = auc(*map(torch.cat, zip(*parts, strict=True)))
    if rank == 0:
        print(f"{'test' if options.test else 'training'} AUC {result:.4f}")
    if world > 1:
        dist.destroy_process_group()
    return result


if __name__ == "__main__":
    main()
