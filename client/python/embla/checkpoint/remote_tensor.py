"""The rows of a table, or a part of their optimizer state, as a tensor that is not here."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embla import Client
from embla.spec import Optimizer

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
    ids
        The id of each row of the tensor, where the table takes any 64-bit id; None: its number.
    """

    client: Client = field(repr=False)
    table: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    state: int | None = None
    ids: npt.NDArray[np.int64] | None = field(default=None, repr=False, compare=False)

    @property
    def rows_per_chunk(self) -> int:
        """How many rows are read or written at a time."""
        row_bytes = self.dtype.itemsize * (self.shape[1] if len(self.shape) == 2 else 1)
        return max(1, CHUNK_BYTES // row_bytes)

    def chunks(self, rank: int = 0, ranks: int = 1) -> list[tuple[int, int]]:
        """Return the row ranges of the chunks in a rank's share.

        Shares are the same for all tensors of a table, as a write of some of a row's state reads
        the rest of it: two ranks never write one row.
        """
        rows, step = self.shape[0], self.rows_per_chunk
        first, last = share_of_rows(rows, rank, ranks)
        # A tensor without rows is one chunk, too: a checkpoint names it then.
        if rows == 0 and rank == 0:
            return [(0, 0)]
        return [(begin, min(begin + step, last)) for begin in range(first, last, step)]

    def read(self, begin: int, end: int) -> Tensor:
        """Return rows ``begin`` to ``end``."""
        ids = self._ids(begin, end)
        if self.state is None:
            return torch.from_numpy(self.client.read_rows(self.table, ids)).to(self.dtype)
        floats = self.client.read_state(self.table, ids)[:, self._state_columns()]
        return torch.from_numpy(np.ascontiguousarray(floats)).reshape(end - begin, *self.shape[1:])

    def write(self, begin: int, values: Tensor, first_column: int = 0) -> None:
        """Write ``values``, ``[N, columns]``, to the rows from ``begin`` on.

        They may be some of the columns only, from ``first_column`` on.
        """
        ids = self._ids(begin, begin + values.shape[0])
        if len(ids) == 0:
            return
        new = values.detach().to("cpu", torch.float32).reshape(len(ids), -1).numpy()
        columns = slice(first_column, first_column + new.shape[1])
        if self.state is not None:
            if new.shape[1] < self.client.state_floats(self.table):
                state = self.client.read_state(self.table, ids)
                state[:, self._state_columns()][:, columns] = new
                new = state
            self.client.write_rows(self.table, ids, state=np.ascontiguousarray(new))
            return
        if new.shape[1] < self.shape[1]:
            rows = self.client.read_rows(self.table, ids)
            rows[:, columns] = new
            new = rows
        self.client.write_rows(self.table, ids, np.ascontiguousarray(new))

    def _ids(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        return np.arange(begin, end) if self.ids is None else self.ids[begin:end]

    def _state_columns(self) -> slice:
        assert self.state is not None
        width = self.shape[1] if len(self.shape) == 2 else 1
        return slice(self.state, self.state + width)


def share_of_rows(rows: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return the rows of a rank in the even cut that DTensor makes."""
    block = -(-rows // ranks)
    return min(rank * block, rows), min((rank + 1) * block, rows)


def weights_of(
    client: Client, table: str, ids: npt.NDArray[np.int64] | None = None
) -> RemoteTensor:
    """Return the weights of ``table``, of a ZCH table those of ``ids``."""
    info = client.table(table).info
    rows = info.rows if ids is None else len(ids)
    return RemoteTensor(client, table, (rows, info.dim), _DTYPES[info.dtype], ids=ids)


def state_of(
    client: Client, table: str, ids: npt.NDArray[np.int64] | None = None
) -> dict[str, RemoteTensor]:
    """Return the optimizer state of ``table``, by TorchRec's names.

    A row's state is first its scalars, then its arrays of the table's dim. The state of a ZCH table
    is one tensor, ``state``: a row that has none yet cannot be given a part of it.
    """
    info = client.table(table).info
    if ids is not None:
        floats = client.state_floats(table)
        shape = (len(ids), floats)
        whole = RemoteTensor(client, table, shape, torch.float32, state=0, ids=ids)
        return {"state": whole} if floats else {}
    optimizer = next(kind for kind in Optimizer.__subclasses__() if kind.kind == info.optimizer)
    scalars, arrays = optimizer.row_state, optimizer.element_state
    parts = {
        name: RemoteTensor(client, table, (info.rows,), torch.float32, position)
        for position, name in enumerate(scalars)
    }
    for position, name in enumerate(arrays):
        first = len(scalars) + position * info.dim
        parts[name] = RemoteTensor(client, table, (info.rows, info.dim), torch.float32, first)
    return parts


def check_shape(name: str, tensor: RemoteTensor, saved: tuple[int, ...]) -> None:
    """Raise ValueError where a saved tensor has another shape than the table's."""
    if saved != tensor.shape:
        raise ValueError(f"{name} is {saved}, table {tensor.table} has {tensor.shape}")
