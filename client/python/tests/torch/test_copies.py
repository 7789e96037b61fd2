"""Rows, gradients and ids pass between torch and the service in place: no copy on the way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_model import FEATURES, batch

from embla.torch import EmbeddingBagSet


class Addresses:
    """A client that notes where the arrays of packed calls lie."""

    def __init__(self, client) -> None:
        self._client = client
        self.lookups: list[dict[str, int]] = []
        self.updates: list[dict[str, int]] = []

    def __getattr__(self, name):
        return getattr(self._client, name)

    def lookup_packed(self, features, ids, lengths, weights, out, **options):
        self.lookups.append(addresses(ids=ids, lengths=lengths, weights=weights, rows=out))
        return self._client.lookup_packed(features, ids, lengths, weights, out, **options)

    def lookup_packed_now(self, features, ids, lengths, weights, out, **options):
        self.lookups.append(addresses(ids=ids, lengths=lengths, weights=weights, rows=out))
        self._client.lookup_packed_now(features, ids, lengths, weights, out, **options)

    def update_packed(self, features, ids, lengths, weights, gradients, **options):
        self.updates.append(addresses(ids=ids, lengths=lengths, weights=weights, rows=gradients))
        return self._client.update_packed(features, ids, lengths, weights, gradients, **options)


def addresses(**arrays) -> dict[str, int]:
    return {
        name: array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()
        for name, array in arrays.items()
        if array is not None
    }


@pytest.fixture
def noting(client):
    return Addresses(client)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_copies_nothing(noting, weighted):
    rows = EmbeddingBagSet(noting, FEATURES[:2] if weighted else FEATURES)
    ids, lengths = batch(0)
    if weighted:
        lengths = lengths[:32]
        ids = ids[: int(lengths.sum())]
    weights = torch.rand(len(ids)) if weighted else None
    out = rows(ids, lengths, weights)
    gradient = torch.rand_like(out)
    out.backward(gradient)
    given = {"ids": ids, "lengths": lengths, "weights": weights}
    assert noting.lookups == [addresses(**given, rows=out)]
    assert noting.updates == [addresses(**given, rows=gradient)]


def test_prefetched_rows_are_not_copied(noting):
    rows = EmbeddingBagSet(noting, FEATURES)
    ids, lengths = batch(0)
    rows.prefetch(ids, lengths)
    out = rows(ids, lengths)
    assert [call["rows"] for call in noting.lookups] == [out.data_ptr()]


def test_a_compiled_step_copies_nothing(noting):
    torch._dynamo.reset()
    rows = EmbeddingBagSet(noting, FEATURES)
    ids, lengths = batch(0)
    out = torch.compile(rows, fullgraph=True, backend="aot_eager")(ids, lengths)
    gradient = torch.rand_like(out)
    out.backward(gradient)
    given = {"ids": ids, "lengths": lengths}
    assert noting.lookups == [addresses(**given, rows=out)]
    assert noting.updates == [addresses(**given, rows=gradient)]
