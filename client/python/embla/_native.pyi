from collections.abc import Generator, Sequence
from typing import Annotated, Any

import numpy
from numpy.typing import NDArray


def version() -> str: ...

class FeatureSet:
    """
    The features of a module, as packed calls take them.

    `features`: (table, pooling "none", "sum" or "mean", dim) each, in the order of the arrays.
    """

    def __init__(self, features: Sequence[tuple[str, str, int]]) -> None: ...

    def __len__(self) -> int: ...

    @property
    def columns(self) -> int:
        """The sum of all dims."""

    @property
    def pooled(self) -> bool:
        """Whether rows are per bag, not per id."""

    @property
    def tables(self) -> list[str]:
        """The table of each feature."""

class Tls:
    """
    The certificates of a connection, or its token: paths of files, which are read again when they change.
    """

    def __init__(self, certificate: str = '', authorities: str = '', key: str = '', revoked: str = '', token: str = '') -> None: ...

    @property
    def certificate(self) -> str:
        """The client's own; empty, and no token: the connection is plaintext."""

    @property
    def authorities(self) -> str:
        """Authorities whose certificates are accepted."""

    @property
    def key(self) -> str:
        """The certificate's private key; empty: it is in the certificate's file."""

    @property
    def revoked(self) -> str:
        """A directory of revocation lists; empty: none."""

    @property
    def token(self) -> str:
        """A file with a token, which takes the certificate's place."""

class Ticket:
    """
    A call that is running. It keeps its arrays alive until it is over; a ticket that is dropped before waits for that.
    """

    def wait(self, timeout: float | None = None) -> Any:
        """
        Waits for the call and returns its result, or raises its error. `timeout` seconds, then DeadlineExceededError: the call itself goes on.
        """

    def done(self) -> bool:
        """Whether `wait` returns at once."""

    def cancel(self) -> bool:
        """
        Gives up a lookup that is not over: its `wait` raises CancelledError, and `out` may be written for a while. False: it is over, or it is an update, which cannot be taken back.
        """

    def cancelled(self) -> bool: ...

    def __await__(self) -> Generator[Any, None, Any]: ...

    def _fileno(self) -> int:
        """A descriptor that is readable when the call is over; the ticket's own."""

class Client:
    def __init__(self, coordinator: str, *, name: str = '', trainer: str = '', timeout: float = 10.0, transport: str = 'auto', connections_per_node: int = 1, in_flight_bytes_max_per_node: int = 67108864, retry_budget_ratio: float = 0.1, threads: int = 2, replica_group: int | None = None, waits_for_coordinator: bool = True, rank: int | None = None, ranks: int = 0, tls: Tls | None = None, traceparent: object | None = None) -> None: ...

    def lookup_packed(self, features: FeatureSet, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, out: Annotated[NDArray[numpy.float32], dict(device='cpu')], *, batch_sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, wire: str = 'fp32', timeout: float = 0.0) -> Ticket:
        """
        Starts a lookup of all features of a set, into `out`.

        ids: int64 [N], all of the first feature, then all of the second, and so on.
        lengths: int32, uint32 or int64 [F * B]: how many ids each bag has, in that order.
        weights: float32 [N] or None.
        out: float32 [B, sum of dims]; of unpooled features [N, dim]. Rows may lie apart.
        batch_sizes: int64 [F], where features differ in B; lengths is then [sum of B], and out is flat: a block [B, dim] per feature.
        timeout: seconds; 0: the client's.
        """

    def lookup_packed_now(self, features: FeatureSet, ids: object, lengths: object, weights: object | None, out: object, *, batch_sizes: object | None = None, wire: str = 'fp32', timeout: float = 0.0) -> None:
        """
        Does what lookup_packed starts, and waits for it. Takes tensors of torch, too.
        """

    def update_packed(self, features: FeatureSet, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, gradients: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], *, batch_sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, step: int = 0, learning_rates: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, wire: str = 'fp32', timeout: float = 0.0) -> Ticket:
        """
        Starts one optimizer step with the gradients of what lookup_packed returned, shaped alike.

        step: the training step; 0: the update's own number.
        learning_rates: float32 [F], or None: the tables' own.
        """

    def _lookup_features(self, features: list, wire: str, timeout: float, combine_duplicates: bool, result: object | None) -> Ticket: ...

    def _update_features(self, features: list, step: int, wire: str, timeout: float, combine_duplicates: bool) -> Ticket: ...

    def _read_rows(self, table: str, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

    def _read_state(self, table: str, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

    def _write_rows(self, table: str, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, state: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, timeout: float) -> None: ...

    def state_floats(self, table: str) -> int:
        """How many floats of optimizer state a row of `table` has."""

    def _tables(self) -> list: ...

    def refresh_plan(self) -> None:
        """Fetches the current plan; calls do so by themselves when they need it."""

    def _sync(self, tables: Sequence[str], timeout: float) -> list: ...

    def _join_steps(self, tables: Sequence[str], timeout: float) -> list[int]: ...

    def _explain_id(self, table: str, id: int) -> dict: ...

    def _survey(self, table: str) -> dict: ...

    def _sweep(self, table: str, older_than_steps: int | None, at_step: int | None) -> dict: ...

    def _export_npy(self, table: str, path: str) -> None: ...

    def _evictions(self, table: str, follow: bool) -> EvictionIterator: ...

    def _scan(self, table: str, with_state: bool) -> ScanIterator: ...

    @property
    def closed(self) -> bool: ...

    @property
    def plan_version(self) -> int:
        """The version of the plan that calls go by."""

    @property
    def has_taken_over(self) -> bool:
        """
        Whether the session took the place of an earlier one of the same trainer: its rank then goes on with the step at which that one was.
        """

    @property
    def session(self) -> int:
        """The number of this process of the trainer."""

    def metrics_text(self) -> str:
        """This client's metrics in the Prometheus text format."""

    def flush(self, timeout: float = 30.0) -> None:
        """
        Waits for the updates in flight; raises the error of the first that fails, or DeadlineExceededError where some are not over after `timeout` seconds.
        """

    def _close(self, timeout: float) -> None: ...

class EvictionIterator:
    """
    Evicted rows, one dict after another. A reading that is dropped ends with the next row, or with the client.
    """

    def __iter__(self) -> EvictionIterator: ...

    def __next__(self) -> dict: ...

class ScanIterator:
    """
    Stretches of a table's rows, one dict after another: weights and state are flat. A reading that is dropped ends with the next stretch.
    """

    def __iter__(self) -> ScanIterator: ...

    def __next__(self) -> dict: ...

class Admin:
    def __init__(self, address: str, *, timeout: float = 10.0, waits_for_coordinator: bool = True, tls: Tls | None = None) -> None: ...

    def close(self) -> None:
        """Ends the connection."""

    def _call(self, method: str, request_json: str, *, changes: bool) -> dict: ...

class ChildStarter:
    """
    Starts programs that end with this process, however it ends, and with this object.
    """

    def __init__(self) -> None: ...

    def start(self, command: Sequence[str], log_path: str) -> int:
        """
        Starts `command`, whose first word is a path, with its output appended to the log; returns its process id. The caller waits for its end.
        """

    def close(self) -> None:
        """Ends the children that are left, with SIGTERM."""
