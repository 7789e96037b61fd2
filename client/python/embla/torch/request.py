"""The input of a call: features, and packed ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True)
class Feature:
    """One input: the table that its ids are looked up in, and how the rows of a bag are pooled.

    Attributes
    ----------
    table
        A table that exists.
    pooling
        ``"none"``: a row per id; ``"sum"`` or ``"mean"``: a row per bag, zeros for an empty one.
    dim
        The table's columns.
    """

    table: str
    pooling: Literal["none", "sum", "mean"]
    dim: int


class Request(NamedTuple):
    """The packed ids of one call, as NumPy arrays on the host."""

    ids: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32] | None
    batch_sizes: tuple[int, ...] | None

    @classmethod
    def of(
        cls,
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        batch_sizes: Sequence[int] | None,
    ) -> Request:
        """View tensors where their type allows it, and casts the others."""
        return cls(
            _host(values, torch.int64),
            _host(lengths, torch.int32),
            None if weights is None else _host(weights, torch.float32),
            None if batch_sizes is None else tuple(batch_sizes),
        )

    def copy(self) -> Request:
        """Return a request that does not change when the caller reuses its tensors."""
        return Request(
            self.ids.copy(),
            self.lengths.copy(),
            None if self.weights is None else self.weights.copy(),
            self.batch_sizes,
        )

    def equals(self, other: Request) -> bool:
        """Tell whether both ask for the same rows in the same shape."""
        return self.batch_sizes == other.batch_sizes and all(
            (mine is None) == (theirs is None)
            and (mine is None or theirs is None or np.array_equal(mine, theirs))
            for mine, theirs in (
                (self.ids, other.ids),
                (self.lengths, other.lengths),
                (self.weights, other.weights),
            )
        )

    def sizes(self) -> npt.NDArray[np.int64] | None:
        """Return the batch sizes as packed calls take them."""
        return None if self.batch_sizes is None else np.array(self.batch_sizes, np.int64)


def check_features(features: Sequence[Feature]) -> bool:
    """Return whether ``features`` are pooled; raise ValueError where they cannot share a call."""
    if not features:
        raise ValueError("a module needs at least one feature")
    pooled = [feature.pooling != "none" for feature in features]
    if any(pooled) != all(pooled):
        raise ValueError("either all features of a module are pooled, or none")
    dims = {feature.dim for feature in features}
    if not all(pooled) and len(dims) > 1:
        raise ValueError(f"features that are not pooled share one dim, not {sorted(dims)}")
    return all(pooled)


def output_shape(
    ids: int,
    lengths: int,
    dims: Sequence[int],
    pooled: bool,
    batch_sizes: Sequence[int] | None,
) -> list[int]:
    """Return the shape of a lookup's result.

    Pooled: ``[B, sum of dims]``, or one flat array of blocks ``[B_f, D_f]`` where features have
    batch sizes of their own. Not pooled: ``[ids, dim]``.
    """
    if not pooled:
        return [ids, dims[0]]
    if batch_sizes is not None:
        return [sum(size * dim for size, dim in zip(batch_sizes, dims, strict=True))]
    return [lengths // len(dims), sum(dims)]


def on_host(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``tensor`` where it lies on the host without gaps and is of ``dtype``; else a copy."""
    if tensor.dtype != dtype or tensor.requires_grad or not tensor.is_cpu:
        tensor = tensor.detach().to("cpu", dtype)
    return tensor.contiguous()


def _host(tensor: Tensor, dtype: torch.dtype) -> npt.NDArray[Any]:
    return on_host(tensor, dtype).numpy()
