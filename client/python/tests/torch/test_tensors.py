"""Packed calls take tensors of torch as they take NumPy's arrays: in place, or not at all."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import Tensor

import embla

BAGS = 4
IDS = torch.tensor([1, 2, 3, 999, 5, 6])
LENGTHS = torch.tensor([1, 2, 0, 3], dtype=torch.int32)


@pytest.fixture
def features():
    return embla.FeatureSet([("t8", "sum", 8)])


def look_up(client, features, **changes) -> Tensor:
    arguments = {"ids": IDS, "lengths": LENGTHS, "weights": None, "out": torch.zeros(BAGS, 8)}
    arguments |= changes
    client.lookup_packed_now(features, **arguments)
    return arguments["out"]


def expected_rows(client, features, weights=None) -> Tensor:
    out = np.zeros((BAGS, 8), np.float32)
    client.lookup_packed(features, IDS.numpy(), LENGTHS.numpy(), weights, out).wait()
    assert out.any()
    return torch.from_numpy(out)


@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS.long()], ids=["int32", "int64"])
def test_tensors_are_read_and_written_in_place(client, features, lengths):
    wide = torch.zeros(BAGS, 11)
    look_up(client, features, lengths=lengths, out=wide[:, 2:10])
    assert torch.equal(wide[:, 2:10], expected_rows(client, features))
    assert not wide[:, :2].any()
    assert not wide[:, 10:].any()


def test_arrays_and_tensors_may_be_mixed(client, features):
    weights = np.linspace(-1, 1, len(IDS), dtype=np.float32)
    out = look_up(client, features, ids=IDS.numpy(), weights=torch.from_numpy(weights))
    assert torch.equal(out, expected_rows(client, features, weights))


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("ids", IDS.int(), "ids must be int64, of one dimension"),
        ("ids", IDS.double(), "ids must be int64"),
        ("ids", torch.arange(12)[::2], "ids must be int64"),
        ("ids", IDS.view(2, 3), "ids must be int64"),
        ("ids", torch.empty(6, dtype=torch.int64, device="meta"), "meta|ids must be int64"),
        ("lengths", LENGTHS.short(), "lengths must be an array of int32"),
        ("lengths", None, "incompatible function arguments"),
        ("weights", torch.ones(6).double(), "weights must be float32"),
        ("out", torch.zeros(BAGS, 8).half(), "out must be float32"),
        ("out", torch.zeros(8, BAGS).t(), "out must have contiguous columns"),
        ("out", torch.zeros(1, BAGS, 8), "out must have one or two dimensions"),
    ],
)  # fmt: skip
def test_a_tensor_of_a_wrong_kind_is_refused(client, features, argument, value, message):
    out = torch.zeros(BAGS, 8)
    # Torch itself refuses devices, by RuntimeError or BufferError.
    with pytest.raises((TypeError, RuntimeError, BufferError), match=message):
        look_up(client, features, **({"out": out} | {argument: value}))
    assert not out.any()


def test_no_memory_is_kept_after_a_call(client, features):
    class Array(np.ndarray):
        """Weakly referable: the memory of a tensor made from it."""

    given = (IDS, LENGTHS, torch.ones(len(IDS)), torch.zeros(BAGS, 8))
    arrays = [tensor.numpy().copy().view(Array) for tensor in given]
    alive = [weakref.ref(array) for array in arrays]
    tensors = [torch.from_numpy(array) for array in arrays]
    del arrays
    client.lookup_packed_now(features, *tensors)
    with pytest.raises(TypeError):
        client.lookup_packed_now(features, *tensors[:3], tensors[3].half())
    assert all(array() is not None for array in alive)
    del tensors
    gc.collect()
    assert all(array() is None for array in alive)
