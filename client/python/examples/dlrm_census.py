"""DLRM on the UCI Adult census data: who earns more than 50,000 dollars a year?

    EMBLA_COORDINATOR=host:7070 EMBLA_ADMIN=host:7071 python dlrm_census.py --data DIR
    torchrun --nproc-per-node 2 dlrm_census.py --data DIR --checkpoint /tmp/census

DIR has adult_train.csv and adult_test.csv, with a header, the label in the first column. --local:
TorchRec keeps the rows in this process. A resumed run goes on after the last epoch.
"""

import argparse
import csv
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.optim import RowWiseAdagrad
from tqdm import tqdm

import embla.checkpoint
from embla.torchrec import wrap

WORDS = ["workclass", "education", "marital_status", "occupation", "relationship", "race", "sex",
         "native_country"]  # fmt: skip
NUMBERS = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
DIM, BATCH = 16, 256  # A batch of all ranks: more of them do not change the steps.


class Dlrm(nn.Module):
    """Numbers through an MLP, words through tables, all their dot products through another MLP."""

    def __init__(self, rows: list[int]):
        super().__init__()
        tables = [
            EmbeddingBagConfig(name=n, embedding_dim=DIM, num_embeddings=count, feature_names=[n])
            for n, count in zip(WORDS, rows, strict=True)
        ]
        self.words = EmbeddingBagCollection(tables=tables)
        self.numbers = nn.Sequential(nn.Linear(len(NUMBERS), 32), nn.ReLU(), nn.Linear(32, DIM))
        pairs = (len(WORDS) + 1) * len(WORDS) // 2
        self.over = nn.Sequential(nn.Linear(DIM + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.triu_indices(len(WORDS) + 1, len(WORDS) + 1, 1))

    def forward(self, numbers: torch.Tensor, words: KeyedJaggedTensor) -> torch.Tensor:
        dense = self.numbers(numbers)
        rows = self.words(words).values().view(-1, len(WORDS), DIM)
        vectors = torch.cat([dense[:, None], rows], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.over(torch.cat([dense, products], dim=1)).squeeze(1)


def read(folder: Path):
    """Return (numbers, ids, labels) of training and test set, and the rows of each table."""
    sets = [list(csv.DictReader((folder / f"adult_{n}.csv").open())) for n in ("train", "test")]
    vocabularies = [
        {w: i + 1 for i, w in enumerate(sorted({line[c] for line in sets[0]}))} for c in WORDS
    ]
    columns = []
    for lines in sets:
        numbers = np.log1p([[float(line[c]) for c in NUMBERS] for line in lines])
        ids = [[v.get(ln[c], 0) for c, v in zip(WORDS, vocabularies, strict=True)] for ln in lines]
        columns.append((numbers, np.array(ids), [float(line["label"]) for line in lines]))
    mean, deviation = columns[0][0].mean(0), columns[0][0].std(0)
    return [
        (torch.tensor((n - mean) / deviation).float(), torch.tensor(i), torch.tensor(labels))
        for n, i, labels in columns
    ], [len(v) + 1 for v in vocabularies]


def to_features(ids: torch.Tensor) -> KeyedJaggedTensor:
    return KeyedJaggedTensor(
        WORDS, ids.t().flatten(), lengths=torch.ones(ids.numel(), dtype=torch.int32)
    )


def auc(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the chance that a positive has a higher score than a negative."""
    ranks = torch.empty(len(scores), dtype=torch.float64)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    positive = labels.sum().double()
    excess = ranks[labels == 1].sum() - positive * (positive + 1) / 2
    return (excess / (positive * (len(labels) - positive))).item()


def connect(model: nn.Module, rank: int, world: int) -> None:
    """Move the tables to the service; the first rank creates them and writes their rows."""
    wrap(model, plan=dict.fromkeys(WORDS, "row_wise"), grad_scale=1 / world)
    for turn in (rank == 0, rank != 0):
        if turn:
            model.words.connect()
        if world > 1:
            dist.barrier()


def evaluate(model: nn.Module, test) -> float:
    numbers, ids, labels = test
    if dist.is_initialized():
        dist.barrier()  # Now the updates of all ranks are in the rows.
    return auc(torch.no_grad()(model.eval())(numbers, to_features(ids)), labels)


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("EMBLA_DATA_DIR", ".")))
    parser.add_argument("--epochs", type=int, default=2, help="in all, with those of a checkpoint")
    parser.add_argument("--local", action="store_true", help="without the service")
    parser.add_argument("--checkpoint", type=Path, help="resumed from if it exists, and written")
    options = parser.parse_args(arguments)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    (train, test), rows = read(options.data)
    model = Dlrm(rows)
    _apply_optimizer_in_backward(RowWiseAdagrad, model.words.parameters(), {"lr": 0.05})
    if not options.local:
        connect(model, rank, world)
    optimizer = torch.optim.Adam([*model.numbers.parameters(), *model.over.parameters()], lr=1e-3)
    if options.checkpoint and options.checkpoint.exists():
        embla.checkpoint.load(model, options.checkpoint, optimizer=optimizer)
    trained = DistributedDataParallel(model) if world > 1 else model
    steps = len(train[0]) // BATCH
    done = 0 if options.local else model.words.site.step // steps
    for epoch in range(done, options.epochs):
        order = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(epoch))
        batches = order[: steps * BATCH].view(steps, BATCH)[:, rank::world]
        for batch in tqdm(batches, desc=f"epoch {epoch}", disable=rank > 0):
            numbers, ids, labels = (column[batch] for column in train)
            optimizer.zero_grad()
            logits = trained.train()(numbers, to_features(ids))
            nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
            optimizer.step()
        if options.checkpoint:
            embla.checkpoint.save(model, options.checkpoint, optimizer=optimizer)
    result = evaluate(model, test)
    if rank == 0:
        print(f"test AUC {result:.4f}")
    if world > 1:
        dist.destroy_process_group()
    return result


if __name__ == "__main__":
    main()
