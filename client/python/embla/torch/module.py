"""The base of all modules with rows in the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from typing_extensions import Self

from embla import Client
from embla.torch import ops as ops  # Registers torch.ops.embla.
from embla.torch.connection import Connection
from embla.torch.prefetch import Prefetch
from embla.torch.request import Feature
from embla.torch.site import CallOptions, Site


class RemoteModule(nn.Module):
    """A module that looks features up in the service and sends their gradients there.

    The rows are no parameters: ``parameters()`` and ``state_dict()`` hold nothing of them, and the
    optimizer is the table's own (:class:`embla.torch.FusedOptimizer` sets its learning rate).
    ``requires_grad_(False)`` freezes them.

    A deep copy shares the client; an unpickled module connects anew to the same coordinator, once
    per process.

    Parameters
    ----------
    client
        What :func:`embla.connect` returns.
    features
        The inputs.
    options
        How it calls the service.
    """

    def __init__(self, client: Client, features: Sequence[Feature], options: CallOptions) -> None:
        super().__init__()
        self._hook = _new_hook(torch.device("cpu"), requires_grad=True)
        self._open(client, features, options)

    @property
    def site(self) -> Site:
        """The module's place at the service: what it has sent and prefetched."""
        return self._site

    @property
    def features(self) -> tuple[Feature, ...]:
        """The inputs, in the order of the module's ids and rows."""
        return self._site.features

    def flush(self) -> None:
        """Wait until every update of the client is acknowledged, and raise what failed."""
        self._site.flush()

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Train the rows, or freeze them: with False no backward pass sends an update.

        ``requires_grad`` is that of :meth:`torch.nn.Module.requires_grad_`.
        """
        super().requires_grad_(requires_grad)
        self._hook.requires_grad_(requires_grad)
        return self

    def extra_repr(self) -> str:
        """Name tables, dims and pooling."""
        return ", ".join(f"{f.table}: dim {f.dim}, {f.pooling}" for f in self.features)

    def _lookup(
        self,
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None = None,
        batch_sizes: Sequence[int] | None = None,
    ) -> Tensor:
        sizes = None if batch_sizes is None else list(batch_sizes)
        if ops.is_eager(values, lengths, weights):
            return ops.lookup_eagerly(self._hook, values, lengths, weights, self._site, sizes)
        return cast(
            Tensor,
            torch.ops.embla.lookup(
                self._hook, values, lengths, weights, self._handle, self._dims, self._pooled, sizes
            ),
        )

    def _prefetch(
        self,
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None = None,
        batch_sizes: Sequence[int] | None = None,
    ) -> Prefetch:
        return self._site.prefetch(values, lengths, weights, batch_sizes)

    def _open(self, client: Client, features: Sequence[Feature], options: CallOptions) -> None:
        self._site = Site(client, features, options)
        # Plain values, which torch.compile and torch.export can trace.
        self._handle = self._site.handle
        self._dims = self._site.dims
        self._pooled = self._site.pooled

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(self._hook.detach()).device
        if device.type != "meta" and device != self._hook.device:
            self._hook = _new_hook(device, self._hook.requires_grad)
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        site: Site = state.pop("_site")
        hook: Tensor = state.pop("_hook")
        for name in ("_handle", "_dims", "_pooled"):
            del state[name]
        state["_reopen"] = {
            "connection": Connection(site.client),
            "features": site.features,
            "options": site.options,
            "step": site.step,
            "device": hook.device,
            "requires_grad": hook.requires_grad,
        }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        reopen = state.pop("_reopen")
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._hook = _new_hook(reopen["device"], reopen["requires_grad"])
        self._open(reopen["connection"].client, reopen["features"], reopen["options"])
        self._site.step = reopen["step"]


def _new_hook(device: torch.device, requires_grad: bool) -> Tensor:
    return torch.zeros(1, device=device, requires_grad=requires_grad)
