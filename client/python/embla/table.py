"""One table, and what is known of tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from embla.client import Client

__all__ = ["Eviction", "IdExplanation", "SweepReport", "Table", "TableInfo", "TableRows",
           "TableSurvey", "TableSyncReport"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableInfo:
    """What a client knows of a table."""

    name: str
    rows: int
    dim: int
    dtype: str
    sharding: str
    optimizer: str
    replica_groups: int
    replica_group: int
    zch: bool


@dataclass(frozen=True, slots=True)
class TableSyncReport:
    """How far the copies of a table had come apart when they were averaged."""

    table: str
    replica_groups: int
    divergence_max: float
    divergence_rms: float


@dataclass(frozen=True, slots=True)
class IdExplanation:
    """What the cluster knows of one id of a ZCH table (docs/zch.md)."""

    node: str
    device: int
    bucket: int
    row: int | None
    shared_row: int | None
    last_step: int
    touches: int
    expires_at_step: int
    seen: int
    group_residents: int
    evicted_reason: str
    evicted_at_step: int
    evicted_last_step: int
    evictions_known_since: int


@dataclass(frozen=True, slots=True)
class TableSurvey:
    """What all nodes hold of a ZCH table."""

    slots: int
    residents: int
    full_groups: int
    waiting: int
    age_sum: int
    oldest_age: int
    latest_step: int


@dataclass(frozen=True, slots=True)
class SweepReport:
    """How many ids lost their rows, and which step counted as now."""

    at_step: int
    evicted: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """An id of a ZCH table that lost its row, and the row as it was.

    `reason`: replaced, expired, idle or removed. `step`: when; `last_step`: its latest touch.
    `missed`: evictions of the same node right before, which it had not kept.
    """

    id: int
    reason: str
    step: int
    last_step: int
    weights: NDArray[np.float32]
    state: NDArray[np.float32]
    missed: int


@dataclass(frozen=True, slots=True)
class TableRows:
    """A stretch of a table's rows.

    Attributes
    ----------
    first_row : int
        The number of the first one; a ZCH table counts its ids.
    ids : int64 array, shape [N]
    weights : float32 array, shape [N, dim]
    state : float32 array, shape [N, state_floats(table)], or None
        The optimizer state, as `Client.read_state` gives it; None where it was not asked for.
    """

    first_row: int
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]
    state: NDArray[np.float32] | None


class Table:
    """A table of a client: ``client.table("clicks")``."""

    def __init__(self, client: Client, info: TableInfo) -> None:
        self.client = client
        self.info = info

    @property
    def name(self) -> str:
        """The table's name."""
        return self.info.name

    @property
    def dim(self) -> int:
        """Columns."""
        return self.info.dim

    def __len__(self) -> int:
        return self.info.rows

    def __repr__(self) -> str:
        info = self.info
        return f"<embla.Table {info.name}: {info.rows} x {info.dim} {info.dtype}, {info.sharding}>"

    def rows(self) -> NDArray[np.float32]:
        """Return all weights, float32 [rows, dim]: for tables that fit. Not for ZCH tables."""
        out = np.empty((self.info.rows, self.info.dim), np.float32)
        begin = 0
        for chunk in self.iter_rows(out=out):
            begin += len(chunk)
        return out

    def iter_rows(
        self, chunk: int = 1 << 16, out: NDArray[np.float32] | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the weights in blocks of `chunk` rows, in order. Not for ZCH tables."""
        for begin in range(0, self.info.rows, chunk):
            end = min(begin + chunk, self.info.rows)
            ids = np.arange(begin, end, dtype=np.int64)
            yield self.client.read_rows(self.name, ids, None if out is None else out[begin:end])

    def scan(self, *, with_state: bool = False) -> Iterator[TableRows]:
        """Yield every row, about 16 MiB at a time, or of a ZCH table every id that has a row.

        Rows of a ZCH table are in the order of its buckets, and the ids of a stretch ascend. Each
        row is as it is when it is read: of an update that is made meanwhile some rows may be old
        and some new.
        """
        state_floats = self.client.state_floats(self.name)
        for fields in self.client._scan(self.name, with_state):
            count = len(fields["ids"])
            yield TableRows(
                fields["first_row"],
                fields["ids"],
                fields["weights"].reshape(count, self.dim),
                fields["state"].reshape(count, state_floats) if with_state else None,
            )

    def export_npy(self, path: str) -> None:
        """Write all weights as a NumPy file; of a ZCH table its ids, too (``path.ids.npy``)."""
        self.client._export_npy(self.name, path)

    def explain_id(self, id: int) -> IdExplanation:
        """Say who has `id` of a ZCH table, or why nobody does."""
        return IdExplanation(**self.client._explain_id(self.name, id))

    def survey(self) -> TableSurvey:
        """Count what all nodes hold of a ZCH table; reads all that is known of its ids."""
        return TableSurvey(**self.client._survey(self.name))

    def sweep(
        self, *, older_than_steps: int | None = None, at_step: int | None = None
    ) -> SweepReport:
        """Take the rows of ids away that were not touched for so long.

        None: of those whose TTL is over, in a table with policy ``ttl``.
        """
        return SweepReport(**self.client._sweep(self.name, older_than_steps, at_step))

    def evictions(self, *, follow: bool = False) -> Iterator[Eviction]:
        """Yield the evicted rows that the nodes still keep; with `follow` also those to come.

        Raises `FailedPreconditionError` where the table keeps none (``eviction_buffer_bytes``).
        """
        for fields in self.client._evictions(self.name, follow):
            yield Eviction(**fields)
