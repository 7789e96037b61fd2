"""Numbers of training steps: of tables with synchronous steps, which all ranks step together."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

import numpy as np
import torch.distributed as dist

import embla
from embla import Client

# Steps that a table may be behind another one of its module when this rank joins.
GAP_MAX = 256


def rank_of_process() -> dict[str, int]:
    """Return ``rank`` and ``ranks`` for :func:`embla.connect`, as torch.distributed has them.

    Without a process group this process is the only rank.
    """
    if dist.is_available() and dist.is_initialized():
        return {"rank": dist.get_rank(), "ranks": dist.get_world_size()}
    return {"rank": 0, "ranks": 1}


class StepCounter:
    """The number of a module's training steps.

    Updates of ordinary tables are counted from 1. Of tables with synchronous steps all ranks have
    one count: whoever joins goes on where the others are, and a rank that was closed joins again
    after the error.

    Attributes
    ----------
    step
        The last step that the module has sent; 0: none.
    """

    def __init__(self, client: Client, tables: Sequence[str], join_timeout: float) -> None:
        self.step = 0
        self._client = client
        self._tables = list(dict.fromkeys(tables))
        self._join_timeout = join_timeout
        self._synchronous: list[str] | None = None  # None: not looked up yet.
        self._has_joined = False
        self._was_member = False
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return the number of the step that begins; joins the tables' steps at first."""
        with self._lock:
            if not self._has_joined:
                self._join()
                self._has_joined = True
            self.step += 1
            return self.step

    def restore(self, step: int) -> None:
        """Go on behind ``step``; once tables' steps are joined, the count is that of all ranks."""
        with self._lock:
            if not (self._has_joined and self._synchronous):
                self.step = step

    def leave(self) -> None:
        """Take note that this rank is no member any more: the next step joins again."""
        with self._lock:
            self._has_joined = False

    def _join(self) -> None:
        if self._synchronous is None:
            # They may just have been created: the plan that is here does not have them then.
            if not {info.name for info in self._client.tables()}.issuperset(self._tables):
                self._client.refresh_plan()
            kinds = {info.name: info.sync for info in self._client.tables()}
            self._synchronous = [table for table in self._tables if kinds.get(table, False)]
            _claim(self._client, self._synchronous, self)
        if not self._synchronous:
            return
        since = self._client.join_steps(self._synchronous, timeout=self._join_timeout)
        # The first step that this rank has not sent; one that is new has sent none, whatever a
        # checkpoint says.
        goes_on = self.step > 0 and (self._was_member or self._client.has_taken_over)
        done = self.step + 1 if goes_on else 0
        begins = {t: max(s, done) for t, s in zip(self._synchronous, since, strict=True)}
        begin = max(1, *begins.values())
        if begin - min(begins.values()) > GAP_MAX:
            numbers = ", ".join(f"{table}: {step}" for table, step in begins.items())
            raise ValueError(f"the tables of a module are at different steps ({numbers})")
        # The other ranks make these steps, too, and wait for this one.
        for step in range(min(begins.values()), begin):
            self._client.update(
                [self._nothing(table) for table, first in begins.items() if first <= step],
                step=step,
            )
        self.step = begin - 1
        self._was_member = True

    def _nothing(self, table: str) -> embla.Gradient:
        return embla.Gradient(table, [], np.empty((0, self._client.table(table).dim), np.float32))


_claims: weakref.WeakKeyDictionary[Client, weakref.WeakValueDictionary[str, StepCounter]] = (
    weakref.WeakKeyDictionary()
)
_claims_lock = threading.Lock()


def _claim(client: Client, tables: Sequence[str], counter: StepCounter) -> None:
    """Raise ValueError if another module of the client makes a table's steps."""
    with _claims_lock:
        claims = _claims.setdefault(client, weakref.WeakValueDictionary())
        for table in tables:
            if claims.get(table, counter) is not counter:
                raise ValueError(
                    f"table {table} has synchronous steps, and two modules over it: a rank makes"
                    " each step once, so give one module both features"
                )
        for table in tables:
            claims[table] = counter
