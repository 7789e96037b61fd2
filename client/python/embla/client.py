"""The client of a cluster, for NumPy arrays.

Arrays go to the cluster and come back in place: nothing is copied or converted on the way. An array
of another dtype, with gaps, or read-only where it is written, raises ``TypeError``. Sequences that
are no arrays, such as lists, are converted.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from embla import _native
from embla._native import FeatureSet, Ticket
from embla._tls import Tls, tls_from_environment
from embla.errors import DeadlineExceededError, InvalidArgumentError

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import ArrayLike, NDArray

    from embla.table import Table, TableInfo, TableSyncReport

    Ids = NDArray[np.int64]
    Floats = NDArray[np.float32]

__all__ = ["Client", "FeatureSet", "Gradient", "Lookup", "Pooling", "Ticket", "Wire", "connect",
           "get_default_client", "set_default_client"]  # fmt: skip

Pooling = Literal["none", "sum", "mean"]
Wire = Literal["fp32", "fp16", "bf16", "int8"]


@dataclass(slots=True)
class Lookup:
    """One input of a lookup: ids into one table.

    Attributes
    ----------
    table : str
        The table's name.
    ids : int64 array, shape [N]
        The ids of all bags, one bag after another.
    lengths : uint32 array, shape [B], optional
        How many ids each bag has. Give it or `offsets`, unless `pooling` is ``"none"``.
    offsets : int64 array, shape [B + 1], optional
        Bag b is ``ids[offsets[b]:offsets[b + 1]]``.
    weights : float32 array, shape [N], optional
        Factors of the rows; pooling ``"sum"`` only.
    pooling : str
        ``"none"``: a row per id. ``"sum"``, ``"mean"``: a row per bag; zeros for an empty one.
    out : float32 array, shape [N or B, dim], optional
        Where the rows go; None: into a new array.
    """

    table: str
    ids: ArrayLike
    lengths: ArrayLike | None = None
    offsets: ArrayLike | None = None
    weights: ArrayLike | None = None
    pooling: Pooling = "none"
    out: Floats | None = None


@dataclass(slots=True)
class Gradient:
    """One input of an update: the gradient of what the matching lookup returned.

    Attributes
    ----------
    table, ids, lengths, offsets, weights, pooling
        As of `Lookup`.
    gradients : float32 array, shape [N or B, dim]
        Of each row that the lookup gave.
    ttl_steps : int
        Tables with policy ``ttl``: how many steps the ids live after this one; 0: as the table
        says.
    """

    table: str
    ids: ArrayLike
    gradients: ArrayLike
    lengths: ArrayLike | None = None
    offsets: ArrayLike | None = None
    weights: ArrayLike | None = None
    pooling: Pooling = "none"
    ttl_steps: int = 0


class Client(_native.Client):
    """A connection to a cluster, for all threads of this process.

    Made by `connect`. A context manager: the end of the block closes it. A process that was forked
    from this one must connect again; its use of this client raises `ForkedClientError`.

    Errors of calls are those of `embla.errors`. The client repeats by itself what may be repeated;
    an update is applied exactly once however often it is sent.
    """

    def __init__(self, coordinator: str, *, wire: Wire = "fp32", **options: Any) -> None:
        super().__init__(coordinator, **options)
        self.coordinator = coordinator
        self.wire: Wire = wire
        self._dims: dict[str, int] = {}
        _open_clients.add(self)

    # ------------------------------------------------------------------ lookups and updates

    def lookup(
        self,
        features: Sequence[Lookup],
        *,
        wire: Wire | None = None,
        timeout: float | None = None,
        combine_duplicates: bool = True,
    ) -> list[Floats]:
        """Return one array of rows per feature.

        Parameters
        ----------
        features : sequence of Lookup
        wire : str, optional
            Number format of the rows on the wire: ``"fp32"``, ``"fp16"``, ``"bf16"``, ``"int8"``;
            None: the client's.
        timeout : float, optional
            Seconds; None: the client's.
        combine_duplicates : bool
            Where at least one in 32 ids is a duplicate, each travels once: of features that are
            not pooled, or whose bags have one id each.
        """
        ticket = self.lookup_async(
            features, wire=wire, timeout=timeout, combine_duplicates=combine_duplicates
        )
        rows: list[Floats] = ticket.wait()
        return rows

    def lookup_async(
        self,
        features: Sequence[Lookup],
        *,
        wire: Wire | None = None,
        timeout: float | None = None,
        combine_duplicates: bool = True,
    ) -> Ticket:
        """Start a lookup; ``wait()`` or ``await`` gives what `lookup` returns.

        It sees every update that was acknowledged before this call. The arrays must not be changed
        until it is over.
        """
        outs: list[Floats] = []
        arguments = []
        for feature in features:
            ids, lengths, offsets, weights = _index_arrays(feature)
            out = feature.out
            if out is None:
                count = _row_count(feature, ids, lengths, offsets)
                out = np.empty((count, self._dim(feature.table)), np.float32)
            outs.append(out)
            arguments.append((feature.table, ids, lengths, offsets, weights, feature.pooling, out))
        return self._lookup_features(
            arguments, wire or self.wire, timeout or 0.0, combine_duplicates, outs
        )

    def update(
        self,
        features: Sequence[Gradient],
        *,
        step: int = 0,
        learning_rate: float | None = None,
        wire: Wire | None = None,
        timeout: float | None = None,
        combine_duplicates: bool = True,
    ) -> None:
        """Do one optimizer step on every touched row, exactly once.

        Features of one table are one step: gradients of an id are summed over all of them first.

        Parameters
        ----------
        features : sequence of Gradient
        step : int
            The training step; 0: the update's own number. Of tables with synchronous steps: the
            step that this is the rank's contribution to, from 0; the call ends when all ranks have
            contributed.
        learning_rate : float, optional
            For this step; None: the tables' own.
        wire, timeout, combine_duplicates
            As for `lookup`; duplicate ids are summed before they travel, where they are many or the
            wire format is not fp32.
        """
        self.update_async(
            features,
            step=step,
            learning_rate=learning_rate,
            wire=wire,
            timeout=timeout,
            combine_duplicates=combine_duplicates,
        ).wait()

    def update_async(
        self,
        features: Sequence[Gradient],
        *,
        step: int = 0,
        learning_rate: float | None = None,
        wire: Wire | None = None,
        timeout: float | None = None,
        combine_duplicates: bool = True,
    ) -> Ticket:
        """Start an update; it is done, exactly once, when ``wait()`` or ``await`` returns."""
        arguments = []
        for feature in features:
            ids, lengths, offsets, weights = _index_arrays(feature)
            gradients = _array(feature.gradients, np.float32)
            arguments.append(
                (feature.table, ids, lengths, offsets, weights, feature.pooling, gradients,
                 feature.ttl_steps, learning_rate)
            )  # fmt: skip
        return self._update_features(
            arguments, step, wire or self.wire, timeout or 0.0, combine_duplicates
        )

    # ------------------------------------------------------------------ rows and state

    def read_rows(self, table: str, ids: ArrayLike, out: Floats | None = None) -> Floats:
        """Return the weights of `ids`, in their order: float32 [N, dim], as a lookup does."""
        array = _array(ids, np.int64)
        if out is None:
            out = np.empty((len(array), self._dim(table)), np.float32)
        self._read_rows(table, array, out)
        return out

    def read_state(self, table: str, ids: ArrayLike, out: Floats | None = None) -> Floats:
        """Return the optimizer state of `ids`: float32 [N, state_floats(table)].

        Per row first the scalars, then the arrays of the table's dim. Raises `IdOutOfRangeError`
        for an id that has no row.
        """
        array = _array(ids, np.int64)
        if out is None:
            out = np.empty((len(array), self.state_floats(table)), np.float32)
        self._read_state(table, array, out)
        return out

    def write_rows(
        self,
        table: str,
        ids: ArrayLike,
        rows: ArrayLike | None = None,
        state: ArrayLike | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Replace the weights and the optimizer state of `ids`; None leaves them as they are.

        Exactly once, also while rows move. After an error some rows may be written; calling again
        does no harm.

        Parameters
        ----------
        table : str
        ids : int64 array, shape [N]
            Each once.
        rows : float32 array, shape [N, dim], optional
        state : float32 array, shape [N, state_floats(table)], optional
            As `read_state` gives it.
        timeout : float, optional
            Seconds; None: the client's.
        """
        self._write_rows(
            table,
            _array(ids, np.int64),
            None if rows is None else _array(rows, np.float32),
            None if state is None else _array(state, np.float32),
            timeout or 0.0,
        )

    # ------------------------------------------------------------------ tables

    def tables(self) -> list[TableInfo]:
        """Return what is known of every table, by the plan that calls go by."""
        from embla.table import TableInfo  # Here: `import embla` does without.

        return [TableInfo(**fields) for fields in self._tables()]

    def table(self, name: str) -> Table:
        """Return one table, with what can be done with it as a whole."""
        from embla.table import Table

        return Table(self, self._info(name))

    def sync(self, tables: Sequence[str] = (), *, timeout: float = 0.0) -> list[TableSyncReport]:
        """Average weights and optimizer state over the replica groups of `tables`; none: of all."""
        from embla.table import TableSyncReport

        return [TableSyncReport(**fields) for fields in self._sync(list(tables), timeout)]

    def join_steps(self, tables: Sequence[str], *, timeout: float = 60.0) -> list[int]:
        """Make this client's rank a member of the tables' synchronous steps, and wait for it.

        Every rank calls this, and then contributes to every step of every table once: an `update`
        with that ``step``, also where there is nothing to say (a `Gradient` without ids).

        Parameters
        ----------
        tables : sequence of str
            Tables made with ``TableSpec(sync=...)``.
        timeout : float
            Seconds; `DeadlineExceededError` names the ranks that are missing.

        Returns
        -------
        list of int
            The first step that each table needs this rank for, or has since it is a member.
        """
        return list(self._join_steps(list(tables), timeout))

    def _info(self, name: str) -> TableInfo:
        # Once more after a refresh: another process may just have created it.
        for refresh in (False, True):
            if refresh:
                self.refresh_plan()
            for info in self.tables():
                if info.name == name:
                    return info
        self.state_floats(name)  # Raises with the service's own words.
        raise InvalidArgumentError(f"table {name} appeared meanwhile: try again", table=name)

    def _dim(self, table: str) -> int:
        dim = self._dims.get(table)
        if dim is None:
            dim = self._dims[table] = self._info(table).dim
        return dim

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float = 30.0) -> None:
        """Wait for the calls in flight, then end the connections; a second call does nothing.

        Raises `DeadlineExceededError` where calls were still going on after `timeout` seconds: they
        were ended, and the client is closed all the same.
        """
        _open_clients.discard(self)
        self._close(timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<embla.Client of {self.coordinator}, {state}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a client is a connection of this process: connect again in the other one")


def connect(
    coordinator: str | None = None,
    *,
    name: str = "",
    trainer: str = "",
    timeout: float = 10.0,
    wire: Wire = "fp32",
    transport: Literal["auto", "stream", "tcp", "unary"] = "auto",
    connections_per_node: int = 1,
    in_flight_bytes_max_per_node: int = 64 << 20,
    retry_budget_ratio: float = 0.1,
    threads: int = 2,
    replica_group: int | None = None,
    waits_for_coordinator: bool = True,
    rank: int | None = None,
    ranks: int = 0,
    tls: Tls | None = None,
    traceparent: Callable[[], str | None] | None = None,
) -> Client:
    """Connect to a cluster.

    Parameters
    ----------
    coordinator : str, optional
        ``host:port``, of several coordinators all, with commas in between; None: the environment
        variable ``EMBLA_COORDINATOR``.
    name : str
        For people; empty: host name and process id.
    trainer : str
        A name that this trainer keeps over its restarts: its session before is closed, so that what
        happened to updates that were in flight does not change any more.
    timeout : float
        Seconds that a call may take that states none, and that this function waits.
    wire : str
        Number format of rows and gradients on the wire, unless a call states one.
    transport : str
        ``"stream"``: one long-lived stream per node. ``"unary"``: one call per request. ``"auto"``:
        a stream, from which calls go on by a data socket: a unix socket to nodes on this host, a
        connection to the node's port elsewhere. ``"tcp"``: the same, but by the port everywhere.
    connections_per_node, in_flight_bytes_max_per_node, retry_budget_ratio
        Limits of the client.
    threads : int
        How many threads merge replies.
    replica_group : int, optional
        Which copy of tables with replica groups to train; None: as the coordinator gives them.
    waits_for_coordinator : bool
        Whether to wait, for `timeout`, where nobody answers.
    rank, ranks : int
        For tables with synchronous steps: this trainer's number, and how many trainers there are;
        both or none. A rank has one client; one with a `trainer` name, started again, has its rank
        back at once.
    tls : Tls, optional
        The certificates of every connection; None: the environment variables ``EMBLA_TLS_CERT``,
        ``EMBLA_TLS_KEY``, ``EMBLA_TLS_CA`` and ``EMBLA_TLS_REVOKED``, and without the first of
        them plaintext.
    traceparent : callable, optional
        Asked by every lookup and update, on the thread that starts it: the W3C traceparent of the
        trace that the call belongs to, or None. ``read_rows`` and ``write_rows`` do not ask.
    """
    return Client(
        coordinator if coordinator is not None else _from_environment("EMBLA_COORDINATOR"),
        name=name,
        trainer=trainer,
        timeout=timeout,
        wire=wire,
        transport=transport,
        connections_per_node=connections_per_node,
        in_flight_bytes_max_per_node=in_flight_bytes_max_per_node,
        retry_budget_ratio=retry_budget_ratio,
        threads=threads,
        replica_group=replica_group,
        waits_for_coordinator=waits_for_coordinator,
        rank=rank,
        ranks=ranks,
        tls=tls if tls is not None else tls_from_environment(),
        traceparent=traceparent,
    )


_default_client: Client | None = None


def set_default_client(client: Client | None) -> None:
    """Make `client` the one that is used wherever none is given; None: there is none any more."""
    global _default_client
    _default_client = client


def get_default_client(**options: Any) -> Client:
    """Return the default client; where none was set, connect by ``EMBLA_COORDINATOR``.

    `options` are those of `connect`, for the case that it has to.
    """
    global _default_client
    if _default_client is None or _default_client.closed:
        _default_client = connect(**options)
    return _default_client


# ---------------------------------------------------------------------- inside


def _from_environment(variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise InvalidArgumentError(f"no address is given, and {variable} is not set")
    return value


def _array(value: ArrayLike, dtype: Any) -> NDArray[Any]:
    """Return an array as it is, anything else as an array of `dtype`."""
    if isinstance(value, np.ndarray):
        return value
    return np.asarray(value, dtype)


def _index_arrays(
    feature: Lookup | Gradient,
) -> tuple[Ids, NDArray[np.uint32] | None, Ids | None, Floats | None]:
    ids = _array(feature.ids, np.int64)
    lengths = feature.lengths
    if lengths is not None:
        lengths = _array(lengths, np.uint32)
        if lengths.dtype == np.int32:
            if len(lengths) and lengths.min() < 0:
                raise InvalidArgumentError("a length is negative")
            lengths = lengths.view(np.uint32)
    offsets = None if feature.offsets is None else _array(feature.offsets, np.int64)
    weights = None if feature.weights is None else _array(feature.weights, np.float32)
    return ids, lengths, offsets, weights


def _row_count(
    feature: Lookup, ids: Ids, lengths: NDArray[np.uint32] | None, offsets: Ids | None
) -> int:
    if feature.pooling == "none":
        return len(ids)
    if lengths is not None:
        return len(lengths)
    return max(len(offsets) - 1, 0) if offsets is not None else 0


# Clients that are open at exit are closed while the interpreter is whole.
_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def close_open_clients() -> None:
    """Close every client of this process; calls in flight get five seconds."""
    for client in list(_open_clients):
        with contextlib.suppress(DeadlineExceededError):
            client.close(timeout=5.0)
