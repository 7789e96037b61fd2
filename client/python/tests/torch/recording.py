"""A client that writes down what modules ask of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Call:
    """One lookup or update as a module made it, its arrays copied."""

    kind: str
    arguments: dict[str, Any]


class HeldTicket:
    """A call that starts when it is released, or when somebody waits for it."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._ticket: Any = None

    def release(self) -> None:
        if self._ticket is None:
            self._ticket = self._start()

    def wait(self, timeout: float | None = None) -> Any:
        self.release()
        return self._ticket.wait(timeout)

    def done(self) -> bool:
        return self._ticket is not None and bool(self._ticket.done())

    def cancel(self) -> bool:
        return False


class RecordingClient:
    """Passes everything on to ``client``.

    Attributes
    ----------
    calls
        The lookups and updates, in order.
    hold_updates
        Whether updates begin only when somebody waits for them: the slowest network there is.
    failure
        What the next update raises when it is waited for.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls: list[Call] = []
        self.hold_updates = False
        self.failure: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    @property
    def order(self) -> str:
        """One letter per call: L for a lookup, U for an update."""
        return "".join(call.kind for call in self.calls)

    def lookup_packed(
        self, features: Any, ids: Any, lengths: Any, weights: Any, out: Any, **options: Any
    ) -> Any:
        self._record("L", ids=ids, lengths=lengths, weights=weights, **options)
        return self._client.lookup_packed(features, ids, lengths, weights, out, **options)

    def lookup_packed_now(
        self, features: Any, ids: Any, lengths: Any, weights: Any, out: Any, **options: Any
    ) -> Any:
        # First the call: what it refuses is no call.
        self._client.lookup_packed_now(features, ids, lengths, weights, out, **options)
        self._record("L", ids=ids, lengths=lengths, weights=weights, **options)

    def update_packed(
        self, features: Any, ids: Any, lengths: Any, weights: Any, gradients: Any, **options: Any
    ) -> Any:
        self._record("U", ids=ids, lengths=lengths, weights=weights, gradients=gradients, **options)
        failure, self.failure = self.failure, None

        def start() -> Any:
            if failure is not None:
                raise failure
            return self._client.update_packed(features, ids, lengths, weights, gradients, **options)

        return HeldTicket(start) if self.hold_updates or failure is not None else start()

    def _record(self, kind: str, **arguments: Any) -> None:
        copies = {
            name: np.array(value) if hasattr(value, "__array__") else value
            for name, value in arguments.items()
        }
        self.calls.append(Call(kind, copies))
