"""Updates that are on their way to the service."""

from __future__ import annotations

import threading
import weakref
from collections import deque

from embla import Client, Ticket


class UpdateQueue:
    """The asynchronous updates of one client that nobody has waited for yet, oldest first.

    A failed update is reported once, by the next call that waits: of all modules of the client,
    because they may share tables.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets: deque[Ticket] = deque()

    def add(self, ticket: Ticket, in_flight_max: int) -> None:
        """Add an update, and wait for older ones until at most ``in_flight_max`` are left."""
        with self._lock:
            self._tickets.append(ticket)
        self._wait_until_at_most(in_flight_max)

    def __len__(self) -> int:
        # Without the lock: most lookups find none.
        return len(self._tickets)

    def wait(self) -> None:
        """Wait until every update is acknowledged; raise the error of the first that failed."""
        self._wait_until_at_most(0)

    def pending(self) -> tuple[Ticket, ...]:
        """Return the updates that nobody has waited for."""
        with self._lock:
            return tuple(self._tickets)

    def raise_failed(self) -> None:
        """Raise the error of the oldest update if it has failed; waits for none."""
        while (ticket := self._oldest(0)) is not None and ticket.done():
            self._wait_for(ticket)

    def _wait_until_at_most(self, count: int) -> None:
        while (ticket := self._oldest(count)) is not None:
            self._wait_for(ticket)

    def _oldest(self, count: int) -> Ticket | None:
        """Return the oldest update, if there are more than ``count``."""
        with self._lock:
            return self._tickets[0] if len(self._tickets) > count else None

    def _wait_for(self, ticket: Ticket) -> None:
        try:
            ticket.wait()
        finally:
            # Only now: until then other threads wait for it, too.
            with self._lock:
                if self._tickets and self._tickets[0] is ticket:
                    self._tickets.popleft()


_queues: weakref.WeakKeyDictionary[Client, UpdateQueue] = weakref.WeakKeyDictionary()
_queues_lock = threading.Lock()


def queue_of(client: Client) -> UpdateQueue:
    """Return the queue of ``client``, which all its modules share."""
    with _queues_lock:
        return _queues.setdefault(client, UpdateQueue())
