"""Lookups that run ahead of the forward pass that wants them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embla import Ticket

if TYPE_CHECKING:
    from embla.torch.request import Request

# Threads that wait for updates, so that the lookups behind them can start.
_executor = ThreadPoolExecutor(max_workers=4, thread_name_prefix="embla-prefetch")


class Prefetch:
    """A lookup under way. It sees every update whose backward pass ran before it was started.

    A context manager: what no forward pass has taken by the end of the block is given up.
    ``prefetch`` of a module makes one; ``request`` is what it asks for, ``out`` where the rows go,
    float32, and ``start`` begins the lookup.
    """

    def __init__(
        self,
        request: Request,
        out: npt.NDArray[np.float32],
        start: Callable[[], Ticket],
        after: Sequence[Ticket],
    ) -> None:
        """Start the lookup, behind the updates ``after``."""
        self.request = request
        self.cancelled = False
        self._out = out
        self._started: Ticket | Future[Ticket]
        if all(update.done() for update in after):
            self._started = start()
        else:
            self._started = _executor.submit(_start_after, after, start)

    def wait(self) -> Tensor:
        """Wait for the rows and return them; raise the lookup's error."""
        self._ticket().wait()
        return torch.from_numpy(self._out)

    def done(self) -> bool:
        """Tell whether :meth:`wait` returns at once."""
        if isinstance(self._started, Future):
            return self._started.done() and self._started.result().done()
        return self._started.done()

    def cancel(self) -> None:
        """Give the rows up; a forward pass with these ids looks them up itself."""
        self.cancelled = True

    def __enter__(self) -> Prefetch:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def _ticket(self) -> Ticket:
        return self._started.result() if isinstance(self._started, Future) else self._started


def _start_after(updates: Sequence[Ticket], start: Callable[[], Ticket]) -> Ticket:
    for update in updates:
        # The queue of updates reports what failed.
        with contextlib.suppress(Exception):
            update.wait()
    return start()
