"""Modules that take plain tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from embla import Client, TableNotFoundError
from embla.torch.module import RemoteModule
from embla.torch.prefetch import Prefetch
from embla.torch.request import Feature
from embla.torch.site import CallOptions


class EmbeddingBagSet(RemoteModule):
    """Many features of many tables, looked up in one call.

    A backward pass is one update: the gradients of all features that share a table are summed
    before the table's optimizer steps. Two modules over one table are two steps.

    Parameters
    ----------
    client
        What :func:`embla.connect` returns.
    features
        The inputs in the order in which ``forward`` takes their ids and returns their rows. Either
        all are pooled, or none; those that are not pooled share one dim.
    **options
        The fields of :class:`CallOptions`.
    """

    def __init__(self, client: Client, features: Sequence[Feature], **options: Any) -> None:
        super().__init__(client, features, CallOptions(**options))

    def forward(
        self,
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None = None,
        *,
        batch_sizes: Sequence[int] | None = None,
    ) -> Tensor:
        """Look rows up.

        Parameters
        ----------
        values
            ``[N]`` ids, int64 or int32: feature by feature, and of a feature bag by bag.
        lengths
            ``[F * B]`` ids per bag, int32 or int64; with ``batch_sizes`` ``[sum of batch_sizes]``.
        weights
            ``[N]`` factors of the rows, with pooling sum; a gradient reaches them.
        batch_sizes
            How many bags each feature has, where they differ.

        Returns
        -------
        Tensor
            float32: ``[B, sum of dims]``; with ``batch_sizes`` the blocks ``[B_f, D_f]`` as one
            flat tensor; without pooling ``[N, dim]``.

        Raises
        ------
        EmblaError
            The service's error, or that of an earlier asynchronous update.
        """
        return self._lookup(values, lengths, weights, batch_sizes)

    def prefetch(
        self,
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None = None,
        *,
        batch_sizes: Sequence[int] | None = None,
    ) -> Prefetch:
        """Start the lookup of a later ``forward`` with equal arguments.

        It sees every update whose backward pass ran before this call.
        """
        return self._prefetch(values, lengths, weights, batch_sizes)


class EmbeddingBag(RemoteModule):
    """One table, pooled: takes the arguments of :class:`torch.nn.EmbeddingBag`.

    Parameters
    ----------
    client
        What :func:`embla.connect` returns.
    table
        A table that exists.
    pooling
        ``"sum"`` or ``"mean"``; the mean of an empty bag is zeros.
    include_last_offset
        Whether offsets end with the number of ids.
    **options
        The fields of :class:`CallOptions`.
    """

    def __init__(
        self,
        client: Client,
        table: str,
        *,
        pooling: Literal["sum", "mean"] = "sum",
        include_last_offset: bool = False,
        **options: Any,
    ) -> None:
        feature = Feature(table, pooling, dim_of(client, table))
        super().__init__(client, [feature], CallOptions(**options))
        self.include_last_offset = include_last_offset

    def forward(
        self,
        ids: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Look bags up.

        Parameters
        ----------
        ids
            ``[B, L]``: B bags of L ids; or ``[N]`` with ``offsets`` or ``lengths``. int64 or int32.
        offsets
            ``[B]`` where each bag begins, and with ``include_last_offset`` N.
        per_sample_weights
            Factors of the rows, in the shape of ``ids``; a gradient reaches them.
        lengths
            ``[B]`` ids per bag, in place of ``offsets``.

        Returns
        -------
        Tensor
            ``[B, dim]`` float32.

        Raises
        ------
        ValueError
            Bags are given in no form, or in two.
        EmblaError
            The service's error, or that of an earlier asynchronous update.
        """
        return self._lookup(*self._packed(ids, offsets, per_sample_weights, lengths))

    def prefetch(
        self,
        ids: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> Prefetch:
        """Start the lookup of a later ``forward`` with equal arguments.

        It sees every update whose backward pass ran before this call.
        """
        return self._prefetch(*self._packed(ids, offsets, per_sample_weights, lengths))

    def _packed(
        self,
        ids: Tensor,
        offsets: Tensor | None,
        weights: Tensor | None,
        lengths: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        given = (offsets is not None) + (lengths is not None) + (ids.dim() == 2)
        if given != 1:
            raise ValueError("give ids as [B, L], or ids as [N] with either offsets or lengths")
        if ids.dim() == 2:
            lengths = torch.full((ids.shape[0],), ids.shape[1], dtype=torch.int32)
        elif offsets is not None:
            if not self.include_last_offset:
                end = torch.full((1,), ids.numel(), dtype=offsets.dtype, device=offsets.device)
                offsets = torch.cat([offsets, end])
            lengths = offsets.diff()
        assert lengths is not None
        return ids.flatten(), lengths, None if weights is None else weights.flatten()


class Embedding(RemoteModule):
    """One table, a row per id: takes the argument of :class:`torch.nn.Embedding`."""

    def __init__(self, client: Client, table: str, **options: Any) -> None:
        feature = Feature(table, "none", dim_of(client, table))
        super().__init__(client, [feature], CallOptions(**options))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows of ``ids``, int64 or int32: ``[*ids.shape, dim]`` float32.

        Raises
        ------
        EmblaError
            The service's error, or that of an earlier asynchronous update.
        """
        return self._lookup(*_one_bag(ids)).reshape(*ids.shape, self._dims[0])

    def prefetch(self, ids: Tensor) -> Prefetch:
        """Start the lookup of a later ``forward`` with equal ids.

        It sees every update whose backward pass ran before this call.
        """
        return self._prefetch(*_one_bag(ids))


def dim_of(client: Client, table: str) -> int:
    """Return the dim of ``table``; raise ValueError if the service has no such table."""
    try:
        return int(client.table(table).dim)
    except TableNotFoundError as error:
        raise ValueError(f"the service has no table {table!r}") from error


def _one_bag(ids: Tensor) -> tuple[Tensor, Tensor]:
    return ids.flatten(), torch.full((1,), ids.numel(), dtype=torch.int32)
