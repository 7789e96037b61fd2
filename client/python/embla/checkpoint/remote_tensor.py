"""The rows of a table, or a part of their optimizer state, as a tensor that is not here."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from embla import Client

CHUNK_BYTES = 64 << 20
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class RemoteTensor:
    """A tensor in the service, read and written by row ranges.

    Attributes
    ----------
    client
        Reads and writes.
    table
        The table's name in the service.
    shape
        ``(rows, dim)``, or ``(rows,)`` of a state with one number per row.
    dtype
        Of what is read.
    state
        None: the weights. Else the first float of a row's state that belongs to the tensor.
    """

    client: Client = field(repr=False)
    table: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    state: int | None = None

    @property
    def rows_per_chunk(self) -> int:
        """How many rows are read or written at a time."""
        row_bytes = self.dtype.itemsize * (self.shape[1] if len(self.shape) == 2 else 1)
        return max(1, CHUNK_BYTES // row_bytes)

    def chunks(self) -> list[tuple[int, int]]:
        """Return the row ranges of all chunks."""
        rows, step = self.shape[0], self.rows_per_chunk
        return [(begin, min(begin + step, rows)) for begin in range(0, rows, step)]

    def read(self, begin: int, end: int) -> Tensor:
        """Return rows ``begin`` to ``end``."""
        ids = np.arange(begin, end)
        if self.state is None:
            return torch.from_numpy(self.client.read_rows(self.table, ids)).to(self.dtype)
        floats = self.client.read_state(self.table, ids)[:, self._state_columns()]
        return torch.from_numpy(np.ascontiguousarray(floats)).reshape(end - begin, *self.shape[1:])

    def write(self, begin: int, values: Tensor, first_column: int = 0) -> None:
        """Write rows from ``begin`` on; ``values`` may have some of the columns only."""
        ids = np.arange(begin, begin + values.shape[0])
        new = values.detach().to("cpu", torch.float32).reshape(len(ids), -1).numpy()
        columns = slice(first_column, first_column + new.shape[1])
        if self.state is not None:
            state = self.client.read_state(self.table, ids)
            state[:, self._state_columns()][:, columns] = new
            self.client.write_rows(self.table, ids, state=state)
            return
        if new.shape[1] < self.shape[1]:
            rows = self.client.read_rows(self.table, ids)
            rows[:, columns] = new
            new = rows
        self.client.write_rows(self.table, ids, np.ascontiguousarray(new))

    def _state_columns(self) -> slice:
        assert self.state is not None
        width = self.shape[1] if len(self.shape) == 2 else 1
        return slice(self.state, self.state + width)


def weights_of(client: Client, table: str) -> RemoteTensor:
    """Return the weights of ``table``.

    Raises
    ------
    ValueError
        The table takes any 64-bit id: its rows have no numbers.
    """
    info = client.table(table).info
    if info.zch:
        raise ValueError(f"table {table} takes any 64-bit id: its rows have no numbers to save")
    return RemoteTensor(client, table, (info.rows, info.dim), _DTYPES[info.dtype])


def state_of(client: Client, table: str) -> dict[str, RemoteTensor]:
    """Return the optimizer state of ``table``, by TorchRec's names.

    A row's state is first its scalars, then its arrays of the table's dim.
    """
    info = client.table(table).info
    scalars, arrays = {
        "sgd": ([], []),
        "rowwise_adagrad": (["momentum1"], []),
        "adagrad": ([], ["momentum1"]),
        "adam": (["row_steps"], ["momentum1", "momentum2"]),
    }[info.optimizer]
    parts = {
        name: RemoteTensor(client, table, (info.rows,), torch.float32, position)
        for position, name in enumerate(scalars)
    }
    for position, name in enumerate(arrays):
        first = len(scalars) + position * info.dim
        shape = (info.rows, info.dim)
        parts[name] = RemoteTensor(client, table, shape, torch.float32, first)
    return parts


def check_shape(name: str, tensor: RemoteTensor, saved: tuple[int, ...]) -> None:
    """Raise ValueError where a saved tensor has another shape than the table's."""
    if saved != tensor.shape:
        raise ValueError(f"{name} is {saved}, table {tensor.table} has {tensor.shape}")
