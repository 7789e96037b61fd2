"""A client as modules hold it: shared by copies, and reconnected by what is unpickled."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import embla
from embla import Client

_clients: weakref.WeakValueDictionary[str, Client] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class Connection:
    """A client that can be copied and pickled.

    A deep copy has the same client. A pickle has the coordinator's address; the first that is
    unpickled in a process connects, and the others share its client.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def __deepcopy__(self, memo: dict[int, Any]) -> Connection:
        return self

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _reconnect, (self.client.coordinator,)


def _reconnect(coordinator: str) -> Connection:
    with _lock:
        client = _clients.get(coordinator)
        if client is None:
            client = _clients[coordinator] = embla.connect(coordinator)
        return Connection(client)
