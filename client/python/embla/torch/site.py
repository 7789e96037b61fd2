"""The objects behind the integer handles of the operators."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embla import Client, FailedPreconditionError, FeatureSet
from embla.torch.prefetch import Prefetch
from embla.torch.request import Feature, Request, check_features, on_host, output_shape
from embla.torch.row_reader import RowReader
from embla.torch.steps import StepCounter
from embla.torch.updates import queue_of

UpdateMode = Literal["sync", "async"]

# Prefetched rows that no forward pass has taken; the oldest are dropped when there are more.
PREFETCHED_MAX = 8


@dataclass(kw_only=True)
class CallOptions:
    """How a module calls the service.

    Attributes
    ----------
    update_mode
        ``"sync"``: a backward pass returns when its update is acknowledged. ``"async"``: it
        returns when the update is on its way; gradients and ids are copied. The numbers are the
        same, because a lookup waits for the updates before it.
    in_flight_max
        How many asynchronous updates of a client may be on their way.
    grad_scale
        Every gradient is multiplied by it before it is sent. Trainers that average their losses
        as DistributedDataParallel does give 1 / number of trainers.
    wire
        Number format of rows and gradients on the wire: fp32, fp16, bf16 or int8; None: what the
        client was connected with.
    timeout
        Seconds until a call fails; 0: what the client was connected with.
    join_timeout
        Seconds that the first training step waits for the other ranks, where tables have
        synchronous steps.
    """

    update_mode: UpdateMode = "sync"
    in_flight_max: int = 2
    grad_scale: float = 1.0
    wire: str | None = None
    timeout: float = 0.0
    join_timeout: float = 600.0

    def __post_init__(self) -> None:
        if self.update_mode not in ("sync", "async"):
            raise ValueError(f'update_mode is "sync" or "async", not {self.update_mode!r}')
        if self.in_flight_max < 1:
            raise ValueError(f"in_flight_max is at least 1, not {self.in_flight_max}")


class Site:
    """One module's place at the service: a client, the features it looks up, and what it has sent.

    Its methods take what :meth:`EmbeddingBagSet.forward` takes: ``values`` ``[N]``, ``lengths``
    ``[F * B]``, ``weights`` ``[N]`` or None, ``batch_sizes`` ``[F]`` or None; and raise
    :class:`embla.EmblaError`. ``options`` say how it calls.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self, client: Client, features: Sequence[Feature], options: CallOptions) -> None:
        self.client = client
        self.features = tuple(features)
        self.options = options
        self.dims = [feature.dim for feature in features]
        self.pooled = check_features(features)
        self._columns = sum(self.dims)
        self._steps = StepCounter(client, [f.table for f in features], options.join_timeout)
        # The learning rate of a table, or None: as the service has it.
        self.learning_rate_of: Callable[[str], float] | None = None
        self.prefetch_hits = 0
        self.prefetch_misses = 0
        self._set = FeatureSet([(f.table, f.pooling, f.dim) for f in features])
        self._row_reader = RowReader(client, self.features)
        self._updates = queue_of(client)
        self._prefetched: deque[Prefetch] = deque()
        self._lock = threading.Lock()
        self.handle = _register(self)

    @property
    def step(self) -> int:
        """The updates sent so far. Adam's bias correction by step counts with it."""
        return self._steps.step

    @step.setter
    def step(self, step: int) -> None:
        self._steps.restore(step)

    def lookup(
        self,
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        batch_sizes: Sequence[int] | None,
    ) -> Tensor:
        """Return the rows, prefetched or fresh; every update before this call is in them."""
        if self._prefetched:
            request = Request.of(values, lengths, weights, batch_sizes)
            if (prefetched := self._take_prefetched(request)) is not None:
                self._after(self._updates.raise_failed)
                return prefetched.wait()
        if self._updates:
            self._after(self._updates.wait)
        # Memory of NumPy and not of torch costs less to allocate and to free.
        out = np.empty(self._shape_of(values, lengths, batch_sizes), np.float32)
        factors = None if weights is None else on_host(weights, torch.float32)
        if not (values.is_cpu and lengths.is_cpu):
            values, lengths = values.cpu(), lengths.cpu()
        try:
            self._lookup_now(values, lengths, factors, batch_sizes, out)
        except TypeError:  # Nothing was sent: they have gaps or another type.
            ids, counts = on_host(values, torch.int64), on_host(lengths, torch.int32)
            self._lookup_now(ids, counts, factors, batch_sizes, out)
        return torch.from_numpy(out)

    def update(
        self,
        gradient: Tensor,
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        batch_sizes: Sequence[int] | None,
    ) -> None:
        """Send the gradient of what the lookup of the same ids returned: one optimizer step."""
        request = Request.of(values, lengths, weights, batch_sizes)
        scaled = gradient.detach().to("cpu", torch.float32)
        if self.options.grad_scale != 1.0:
            scaled = scaled * self.options.grad_scale
        gradients = scaled.contiguous().numpy()
        is_async = self.options.update_mode == "async"
        if is_async:
            # A compiled backward pass reuses the memory of gradients, and loaders that of ids.
            request, gradients = request.copy(), gradients.copy()
        step = self._steps.next()
        ticket = self.client.update_packed(
            self._set,
            request.ids,
            request.lengths,
            request.weights,
            gradients,
            batch_sizes=request.sizes(),
            step=step,
            learning_rates=self._learning_rates(),
            wire=self.options.wire or self.client.wire,
            timeout=self.options.timeout,
        )
        if is_async:
            self._after(lambda: self._updates.add(ticket, self.options.in_flight_max))
        else:
            self._after(ticket.wait)

    def weight_gradient(
        self,
        gradient: Tensor,
        values: Tensor,
        lengths: Tensor,
        batch_sizes: Sequence[int] | None,
    ) -> Tensor:
        """Return, for each id, the product of its row and the gradient of its bag: ``[N]``."""
        self._updates.wait()
        return self._row_reader.weight_gradient(
            gradient.detach().to("cpu", torch.float32),
            Request.of(values, lengths, None, batch_sizes),
            self._call_options(),
        )

    def prefetch(
        self,
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        batch_sizes: Sequence[int] | None,
    ) -> Prefetch:
        """Start a lookup that the next forward pass with equal ids takes over."""
        request = Request.of(values, lengths, weights, batch_sizes).copy()
        out = self._empty(request)
        prefetch = Prefetch(
            request, out, lambda: self._start_lookup(request, out), self._updates.pending()
        )
        with self._lock:
            self._prefetched.append(prefetch)
            dropped = self._prefetched.popleft() if self._is_full() else None
        if dropped is not None:
            dropped.cancel()
        return prefetch

    def flush(self) -> None:
        """Wait until every update of the client is acknowledged, and raise what failed."""
        self._after(self._updates.wait)

    def _after(self, wait: Callable[[], object]) -> None:
        """Wait for updates; where a step is over without this rank, it joins again."""
        try:
            wait()
        except FailedPreconditionError:
            self._steps.leave()
            raise

    def _start_lookup(self, request: Request, out: npt.NDArray[np.float32]) -> Any:
        return self.client.lookup_packed(
            self._set,
            request.ids,
            request.lengths,
            request.weights,
            out,
            batch_sizes=request.sizes(),
            wire=self.options.wire or self.client.wire,
            timeout=self.options.timeout,
        )

    def _lookup_now(
        self,
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        batch_sizes: Sequence[int] | None,
        out: npt.NDArray[np.float32],
    ) -> None:
        self.client.lookup_packed_now(
            self._set,
            values,
            lengths,
            weights,
            out,
            batch_sizes=None if batch_sizes is None else np.array(batch_sizes, np.int64),
            wire=self.options.wire or self.client.wire,
            timeout=self.options.timeout,
        )

    def _shape_of(
        self, values: Tensor, lengths: Tensor, batch_sizes: Sequence[int] | None
    ) -> Sequence[int]:
        if self.pooled and batch_sizes is None:
            return lengths.numel() // len(self.dims), self._columns
        return output_shape(values.numel(), lengths.numel(), self.dims, self.pooled, batch_sizes)

    def _empty(self, request: Request) -> npt.NDArray[np.float32]:
        shape = output_shape(
            request.ids.size, request.lengths.size, self.dims, self.pooled, request.batch_sizes
        )
        # Memory of NumPy and not of torch costs the native module less to keep and to drop.
        return np.empty(shape, np.float32)

    def _call_options(self) -> dict[str, Any]:
        return {"wire": self.options.wire or self.client.wire, "timeout": self.options.timeout}

    def _learning_rates(self) -> npt.NDArray[np.float32] | None:
        if self.learning_rate_of is None:
            return None
        return np.array([self.learning_rate_of(f.table) for f in self.features], np.float32)

    def _take_prefetched(self, request: Request) -> Prefetch | None:
        with self._lock:
            self._prefetched = deque(p for p in self._prefetched if not p.cancelled)
            for prefetch in self._prefetched:
                if prefetch.request.equals(request):
                    self._prefetched.remove(prefetch)
                    self.prefetch_hits += 1
                    return prefetch
            self.prefetch_misses += bool(self._prefetched)
        return None

    def _is_full(self) -> bool:
        return len(self._prefetched) > PREFETCHED_MAX


def find_site(handle: int) -> Site:
    """Return the site of ``handle``; raise RuntimeError once its module is gone."""
    site = _sites.get(handle)
    if site is None:
        raise RuntimeError(
            f"embla: no module has the handle {handle} in this process; an exported program calls"
            " the service through the modules of the process that exported it"
        )
    return site


_sites: weakref.WeakValueDictionary[int, Site] = weakref.WeakValueDictionary()
_handles = itertools.count(1)


def _register(site: Site) -> int:
    handle = next(_handles)
    _sites[handle] = site
    return handle
