"""All rows of a table as one tensor, some thousand at a time."""

from __future__ import annotations

import numpy as np
import torch

import embla

ROWS_PER_CHUNK = 65_536


def read_all(client: embla.Client, table: str, rows: torch.Tensor) -> None:
    """Read all rows of ``table`` into a tensor, some thousand at a time."""
    for begin in range(0, rows.shape[0], ROWS_PER_CHUNK):
        ids = np.arange(begin, min(begin + ROWS_PER_CHUNK, rows.shape[0]))
        chunk = torch.from_numpy(client.read_rows(table, ids))
        rows[begin : begin + len(ids)].copy_(chunk)


def write_all(client: embla.Client, table: str, rows: torch.Tensor) -> None:
    """Write all rows of ``table``, some thousand at a time."""
    for begin in range(0, rows.shape[0], ROWS_PER_CHUNK):
        chunk = rows[begin : begin + ROWS_PER_CHUNK].to("cpu", torch.float32).contiguous()
        client.write_rows(table, np.arange(begin, begin + chunk.shape[0]), chunk.numpy())
