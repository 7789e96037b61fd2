"""A small model over three features of two tables, and batches for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from embla.torch import EmbeddingBagSet, Feature

FEATURES = [Feature("t8", "sum", 8), Feature("t8", "sum", 8), Feature("t16", "mean", 16)]
BAGS = 16


class Model(nn.Module):
    """Looks rows up ``calls`` times with the same ids, and puts a layer on them."""

    def __init__(self, client: Any, calls: int = 1, **options: Any) -> None:
        super().__init__()
        self.rows = EmbeddingBagSet(client, FEATURES, **options)
        self.dense = nn.Linear(32, 1)
        self._calls = calls

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        rows = self.rows(ids, lengths)
        for _ in range(self._calls - 1):
            rows = rows + self.rows(ids, lengths)
        return self.dense(torch.relu(rows)).squeeze(1)


def batch(seed: int, rows: int = 1000) -> tuple[Tensor, Tensor]:
    """Returns ids and lengths of 3 x 16 bags of up to three ids."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 4, (3 * BAGS,), generator=generator, dtype=torch.int32)
    return torch.randint(0, rows, (int(lengths.sum()),), generator=generator), lengths


def train(model: Any, steps: int) -> None:
    """Runs forward and backward passes over the first batches."""
    for step in range(steps):
        model(*batch(step)).square().mean().backward()
