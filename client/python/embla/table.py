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
    """A client's view of a table.

    Attributes
    ----------
    name : str
    rows : int
        Of a ZCH table: how many ids can have a row.
    dim : int
        Columns.
    dtype : str
        ``"fp32"``, ``"fp16"`` or ``"bf16"`` on the nodes; clients see float32.
    sharding : str
        The sharding type, such as ``"row_wise"``.
    optimizer : str
        Such as ``"rowwise_adagrad"``.
    replica_groups : int
        Copies that are trained apart and averaged; 1: none.
    replica_group : int
        This client's.
    zch : bool
        Whether ids are any 64-bit numbers.
    sync : bool
        Whether it steps once per training step, with the sum over all ranks.
    """

    name: str
    rows: int
    dim: int
    dtype: str
    sharding: str
    optimizer: str
    replica_groups: int
    replica_group: int
    zch: bool
    sync: bool


@dataclass(frozen=True, slots=True)
class TableSyncReport:
    """How far the copies of a table had come apart when they were averaged.

    Attributes
    ----------
    table : str
    replica_groups : int
        How many copies there are.
    divergence_max : float
        The largest distance of a weight from the mean of its copies.
    divergence_rms : float
        The root of the mean square of those distances.
    """

    table: str
    replica_groups: int
    divergence_max: float
    divergence_rms: float


@dataclass(frozen=True, slots=True)
class IdExplanation:
    """The cluster's record of one id of a ZCH table (docs/zch.md); times are training steps.

    Attributes
    ----------
    node : str
    device : int
        The device of `node` that has the id's bucket.
    bucket : int
    row : int or None
        The id's own row.
    shared_row : int or None
        The reserved row that it shares while it has none.
    last_step : int
        Of its latest touch.
    touches : int
        Policies ``lfu`` and ``distance_lfu``.
    expires_at_step : int
        Policy ``ttl``.
    seen : int
        Towards admission by count, while it has no row.
    group_residents : int
        Ids with a row among the 64 that it may have.
    evicted_reason : str
        Why it lost its row, where the bucket still knows: replaced, expired, idle or removed.
    evicted_at_step : int
        When.
    evicted_last_step : int
        Of its latest touch then.
    evictions_known_since : int
        The bucket remembers no evictions before this step; 0: it remembers all.
    """

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
    """Counts of a ZCH table over all nodes. While buckets move, one may count twice, or not at all.

    Attributes
    ----------
    slots : int
        Rows that ids may have.
    residents : int
        Ids with a row.
    full_groups : int
        Groups of 64 rows in which a new id needs a victim.
    waiting : int
        Ids that are counted towards admission.
    age_sum : int
        Over ids with a row: steps from their latest touch to `latest_step`.
    oldest_age : int
        The largest of them, in steps.
    latest_step : int
        Of all touches.
    """

    slots: int
    residents: int
    full_groups: int
    waiting: int
    age_sum: int
    oldest_age: int
    latest_step: int


@dataclass(frozen=True, slots=True)
class SweepReport:
    """How many ids lost their rows (`evicted`), and which step counted as now (`at_step`)."""

    at_step: int
    evicted: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """An id of a ZCH table that lost its row, and the row as it was.

    Attributes
    ----------
    id : int
    reason : str
        replaced, expired, idle or removed.
    step, last_step : int
        The training step of the eviction, and of the id's latest touch.
    weights : float32 array, shape [dim]
    state : float32 array, shape [state_floats(table)]
        The optimizer state, as `Client.read_state` gives it.
    missed : int
        Evictions of the same node right before, which it had not kept.
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
    """A table of a client: ``client.table("clicks")``. `info` is its `TableInfo`.

    Errors of its methods are those of `embla.errors`, as of all calls of a client.
    """

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
        """Yield the weights in blocks of `chunk` rows, in order. Not for ZCH tables.

        The blocks are parts of `out`, float32 [rows, dim], where it is given.
        """
        for begin in range(0, self.info.rows, chunk):
            end = min(begin + chunk, self.info.rows)
            ids = np.arange(begin, end, dtype=np.int64)
            yield self.client.read_rows(self.name, ids, None if out is None else out[begin:end])

    def scan(self, *, with_state: bool = False) -> Iterator[TableRows]:
        """Yield every row, about 16 MiB at a time, or of a ZCH table every id that has a row.

        `with_state`: with the optimizer state.

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
        """Take the rows of ids away that were not touched for `older_than_steps` training steps.

        None: of those whose TTL is over, in a table with policy ``ttl``. `at_step` counts as now;
        None: the latest step of all touches.
        """
        return SweepReport(**self.client._sweep(self.name, older_than_steps, at_step))

    def evictions(self, *, follow: bool = False) -> Iterator[Eviction]:
        """Yield the evicted rows that the nodes still keep; with `follow` also those to come.

        Raises `FailedPreconditionError` where the table keeps none (``eviction_buffer_bytes``).
        """
        for fields in self.client._evictions(self.name, follow):
            yield Eviction(**fields)
