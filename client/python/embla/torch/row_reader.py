"""Rows without pooling, for the gradient of per-sample weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embla import Client, FeatureSet
from embla.torch.request import Feature, Request


class RowReader:
    """Reads the rows of pooled features one by one: one call for all features of one dim."""

    def __init__(self, client: Client, features: Sequence[Feature]) -> None:
        self._client = client
        self._features = features
        self._members: dict[int, list[int]] = {}  # By dim: the features that have it.
        for position, feature in enumerate(features):
            self._members.setdefault(feature.dim, []).append(position)
        self._sets = {
            dim: FeatureSet([(features[m].table, "none", dim) for m in members])
            for dim, members in self._members.items()
        }

    def weight_gradient(
        self, gradient: Tensor, request: Request, call_options: Mapping[str, Any]
    ) -> Tensor:
        """Return, for each id, the product of its row and the gradient of its bag: ``[N]``."""
        lengths = _lengths_by_feature(request, len(self._features))
        counts = [int(part.sum()) for part in lengths]
        ids = np.split(request.ids, np.cumsum(counts)[:-1])
        blocks = _blocks(gradient, [f.dim for f in self._features], request.batch_sizes)
        rows = self._read(ids, call_options)
        return torch.from_numpy(
            np.concatenate(
                [
                    np.einsum("nd,nd->n", row, np.repeat(block, part, axis=0))
                    for row, block, part in zip(rows, blocks, lengths, strict=True)
                ]
            ).astype(np.float32, copy=False)
        )

    def _read(
        self, ids: Sequence[npt.NDArray[np.int64]], call_options: Mapping[str, Any]
    ) -> list[npt.NDArray[np.float32]]:
        """Return the rows of each feature's ids."""
        tickets = []
        rows: list[npt.NDArray[np.float32]] = [np.empty((0, 0), np.float32)] * len(ids)
        for dim, members in self._members.items():
            counts = np.array([ids[m].size for m in members], np.int32)
            out = np.empty((int(counts.sum()), dim), np.float32)
            packed = np.concatenate([ids[m] for m in members])
            tickets.append(
                self._client.lookup_packed(
                    self._sets[dim], packed, counts, None, out, **call_options
                )
            )
            for m, part in zip(members, np.split(out, np.cumsum(counts)[:-1]), strict=True):
                rows[m] = part
        for ticket in tickets:
            ticket.wait()
        return rows


def _lengths_by_feature(request: Request, features: int) -> list[npt.NDArray[np.int32]]:
    if request.batch_sizes is None:
        return list(request.lengths.reshape(features, -1))
    return np.split(request.lengths, np.cumsum(request.batch_sizes)[:-1])


def _blocks(
    gradient: Tensor, dims: Sequence[int], batch_sizes: Sequence[int] | None
) -> list[npt.NDArray[np.float32]]:
    """Return the gradient of each feature's bags, ``[B_f, D_f]``."""
    if batch_sizes is None:
        return [block.numpy() for block in gradient.split(list(dims), dim=1)]
    sizes = [size * dim for size, dim in zip(batch_sizes, dims, strict=True)]
    flat = zip(gradient.split(sizes), batch_sizes, dims, strict=True)
    return [block.reshape(size, dim).numpy() for block, size, dim in flat]
