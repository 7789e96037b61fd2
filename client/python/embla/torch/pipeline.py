"""A training loop that looks rows up while it does something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

Batch = TypeVar("Batch")


class TrainPipeline(Generic[Batch]):
    """Runs training steps, and lookups ahead of them.

    Parameters
    ----------
    model
        Takes a batch and returns a loss and whatever else, as models of TorchRec's pipelines do.
    optimizer
        Of the dense parameters.
    prefetch
        Called with a batch when its lookups may start: calls ``prefetch`` of the model's modules
        with the ids that the forward pass will give them. The model need not be traceable.
    staleness
        0: the lookup of a batch starts when the updates of the batch before are acknowledged. It
        overlaps with the dense optimizer, the loading of data and whatever the caller does between
        two steps. The numbers are those of a loop without pipeline.
        1: it starts before the forward pass of the batch before, and overlaps with all of that
        step. A row that both batches touch is one step old.

    With ``update_mode="async"`` the updates, too, overlap with the dense optimizer.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        prefetch: Callable[[Batch], Any],
        staleness: Literal[0, 1] = 0,
    ) -> None:
        if staleness not in (0, 1):
            raise ValueError(f"staleness is 0 or 1, not {staleness}")
        self._model = model
        self._optimizer = optimizer
        self._prefetch = prefetch
        self._staleness = staleness
        self._batches: list[Batch] = []  # Loaded; the first one's lookup has started.
        self._source: Iterator[Batch] | None = None

    def progress(self, batches: Iterator[Batch]) -> tuple[Tensor, Any]:
        """Train on the next batch; raise StopIteration when there is none.

        Returns
        -------
        tuple
            What the model returned, its loss detached.
        """
        self._begin(batches)
        if not self._batches:
            raise StopIteration
        batch = self._batches[0]
        if self._staleness == 1:
            self._prefetch_next()
        self._optimizer.zero_grad()
        loss, output = self._model(batch)
        loss.sum().backward()
        if self._staleness == 0:
            self._prefetch_next()
        self._optimizer.step()
        self._batches.pop(0)
        self._load()
        return loss.detach(), output

    def _begin(self, batches: Iterator[Batch]) -> None:
        """Load two batches of an iterator that is new, and start the first one's lookup."""
        if self._source is not batches:
            self._source = batches
            self._batches.clear()
            self._load()
            self._load()
            if self._batches:
                self._prefetch(self._batches[0])

    def _prefetch_next(self) -> None:
        if len(self._batches) > 1:
            self._prefetch(self._batches[1])

    def _load(self) -> None:
        assert self._source is not None
        self._batches.extend(batch for batch in [next(self._source, None)] if batch is not None)
