"""How an event loop waits for a ticket: by the descriptor that becomes readable at the call's end.

No thread of the client ever needs the interpreter's lock for that.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Protocol


class Awaitable(Protocol):
    """The methods of a native ticket."""

    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> Any: ...
    def cancel(self) -> bool: ...
    def _fileno(self) -> int: ...


async def completed(ticket: Awaitable) -> Any:
    """Return the ticket's result once its call is over; a cancelled task gives the call up."""
    if not ticket.done():
        loop = asyncio.get_running_loop()
        # A descriptor of its own: several tasks may wait for one ticket.
        descriptor = os.dup(ticket._fileno())
        over: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, _wake, loop, descriptor, over)
        try:
            await over
        except asyncio.CancelledError:
            ticket.cancel()
            raise
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
    return ticket.wait()


def _wake(loop: asyncio.AbstractEventLoop, descriptor: int, over: asyncio.Future[None]) -> None:
    loop.remove_reader(descriptor)
    if not over.done():
        over.set_result(None)
