"""The exceptions: one class per status code of the service.

Every class derives from `EmblaError`, and from the built-in exception that says the same, so that
``except ValueError`` or ``except ConnectionError`` work as well. Nothing here is retried: the
client has done that already.
"""

from __future__ import annotations

from typing import ClassVar


class EmblaError(RuntimeError):
    """Base of all errors of this package.

    Attributes
    ----------
    code : str
        The status code, such as ``"NOT_FOUND"``; ``""`` for errors that only Python has.
    table : str or None
        The table it is about, where the service said which.
    node : str or None
        The node that was asked, where the service said which.
    retryable : bool
        Whether the same call may succeed later.
    outcome_unknown : bool
        An update, or another change, that may or may not have happened.
    """

    default_code: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        table: str | None = None,
        node: str | None = None,
        retryable: bool = False,
        outcome_unknown: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = self.default_code if code is None else code
        self.table = table
        self.node = node
        self.retryable = retryable
        self.outcome_unknown = outcome_unknown


class InvalidArgumentError(EmblaError, ValueError):
    """The call is wrong: sizes, names, NaN gradients."""

    default_code = "INVALID_ARGUMENT"


class TableNotFoundError(EmblaError, LookupError):
    """There is no such table, node or job."""

    default_code = "NOT_FOUND"


class IdOutOfRangeError(EmblaError, IndexError):
    """An id is outside its table, whose bounds mode is ``error``; or has no row, of a state."""

    default_code = "OUT_OF_RANGE"


class UnavailableError(EmblaError, ConnectionError):
    """A node cannot be reached, or the retry budget is used up."""

    default_code = "UNAVAILABLE"


class DeadlineExceededError(EmblaError, TimeoutError):
    """The call's time is over; the message names the node that was awaited."""

    default_code = "DEADLINE_EXCEEDED"


class OverloadedError(EmblaError):
    """A node is overloaded, or too many calls wait for the client's threads."""

    default_code = "RESOURCE_EXHAUSTED"


class PermissionDeniedError(EmblaError, PermissionError):
    """The certificate's role does not allow the call, or this client's session is closed.

    A session is closed when another client connects as the same trainer, and when its lease is
    over. The message says which it is.
    """

    default_code = "PERMISSION_DENIED"


class FailedPreconditionError(EmblaError):
    """The cluster is in a state in which this cannot be done.

    A synchronous step that is over or has failed, or of which this rank is no member, raises it as
    well: `embla.Client.join_steps` makes the rank a member again.
    """

    default_code = "FAILED_PRECONDITION"


class AlreadyExistsError(EmblaError):
    """There is such a table already."""

    default_code = "ALREADY_EXISTS"


class DataLossError(EmblaError):
    """Rows are lost or damaged: stop, and look at the cluster."""

    default_code = "DATA_LOSS"


class InternalError(EmblaError):
    """An error of another code, which ``code`` names."""

    default_code = "INTERNAL"


class ClientClosedError(EmblaError, ValueError):
    """The client, the admin or the cluster was closed before."""


class ForkedClientError(EmblaError):
    """The client was made before this process was forked: connect again in the child."""


class CancelledError(EmblaError):
    """The ticket was cancelled."""


class ClusterStartError(EmblaError):
    """A program of a `embla.LocalCluster` is missing, does not start or does not serve."""


_CODES: dict[int, tuple[str, type[EmblaError]]] = {
    1: ("CANCELLED", InternalError),
    2: ("UNKNOWN", InternalError),
    3: ("INVALID_ARGUMENT", InvalidArgumentError),
    4: ("DEADLINE_EXCEEDED", DeadlineExceededError),
    5: ("NOT_FOUND", TableNotFoundError),
    6: ("ALREADY_EXISTS", AlreadyExistsError),
    7: ("PERMISSION_DENIED", PermissionDeniedError),
    8: ("RESOURCE_EXHAUSTED", OverloadedError),
    9: ("FAILED_PRECONDITION", FailedPreconditionError),
    10: ("ABORTED", InternalError),
    11: ("OUT_OF_RANGE", IdOutOfRangeError),
    12: ("UNIMPLEMENTED", InternalError),
    13: ("INTERNAL", InternalError),
    14: ("UNAVAILABLE", UnavailableError),
    15: ("DATA_LOSS", DataLossError),
    16: ("UNAUTHENTICATED", InternalError),
}


def from_status(
    code: int,
    message: str,
    outcome_unknown: bool,
    table: str = "",
    node: str = "",
    retryable: bool = False,
) -> EmblaError:
    """Return the exception of a status of the C++ client; called by the native module."""
    name, kind = _CODES.get(code, ("UNKNOWN", InternalError))
    return kind(
        message,
        code=name,
        table=table or None,
        node=node or None,
        retryable=retryable,
        outcome_unknown=outcome_unknown,
    )
