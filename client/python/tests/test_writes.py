"""Rows that are written, and learning rates of single steps."""

import numpy as np
import pytest

import embla
from embla import FeatureSet, Gradient


@pytest.mark.parametrize(
    ("optimizer", "floats"),
    [(embla.SGD(), 0), (embla.RowwiseAdagrad(), 1), (embla.Adagrad(), 8), (embla.Adam(), 17)],
)
def test_rows_and_state_are_read_back_as_written(client, make_table, rng, optimizer, floats):
    table = make_table(optimizer=optimizer)
    ids = rng.permutation(1000)[:300]
    rows = rng.standard_normal((300, 8)).astype(np.float32)
    state = rng.integers(1, 100, (300, floats)).astype(np.float32)
    others = np.setdiff1d(np.arange(1000), ids)
    before = client.read_rows(table, others)
    client.write_rows(table, ids, rows, state if floats else None)
    np.testing.assert_array_equal(client.read_rows(table, ids), rows)
    if floats:
        np.testing.assert_array_equal(client.read_state(table, ids), state)
        client.write_rows(table, ids[:5], state=2 * state[:5])
        np.testing.assert_array_equal(client.read_state(table, ids[:5]), 2 * state[:5])
    client.write_rows(table, ids[:5], -rows[:5])
    np.testing.assert_array_equal(client.read_rows(table, ids[:5]), -rows[:5])
    np.testing.assert_array_equal(client.read_rows(table, others), before)


def test_wrong_writes_change_nothing(client, make_table):
    table = make_table(init=embla.Constant(1.0))
    ones = np.ones((2, 8), np.float32)
    nan = ones.copy()
    nan[1, 1] = np.nan
    for ids, rows, state in [
        ([1, 1], ones, None),
        ([1, 2], ones[:1], None),
        ([1, 2], nan, None),
        ([1, 2], ones, np.ones((2, 3), np.float32)),
    ]:
        with pytest.raises(ValueError):
            client.write_rows(table, ids, rows, state)
    with pytest.raises(IndexError):
        client.write_rows(table, [1, 1000], ones)
    for rows in (np.ones((2, 8)), np.ones((8, 2), np.float32).T, np.ones(16, np.float32)):
        with pytest.raises(TypeError):
            client.write_rows(table, np.array([1, 2]), rows)
    assert (client.table(table).rows() == 1).all()


def test_a_learning_rate_is_one_steps(client, make_table):
    first, second = (make_table(init=embla.Constant(0.0)) for _ in range(2))
    ones = np.ones((1, 8), np.float32)
    client.update([Gradient(first, [1], ones)], learning_rate=0.25)
    client.update([Gradient(first, [1], ones)])
    assert client.read_rows(first, [1])[0, 0] == -1.25
    features = FeatureSet([(first, "sum", 8), (second, "sum", 8)])
    client.update_packed(
        features, np.array([2, 2]), np.ones(2, np.int32), None, np.ones((1, 16), np.float32),
        learning_rates=np.float32([0.5, 0.125]),
    ).wait()  # fmt: skip
    assert client.read_rows(first, [2])[0, 0] == -0.5
    assert client.read_rows(second, [2])[0, 0] == -0.125


def test_wrong_learning_rates_change_nothing(client, make_table):
    table = make_table(init=embla.Constant(0.0))
    ones = np.ones((1, 8), np.float32)
    for rate in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError):
            client.update([Gradient(table, [1], ones)], learning_rate=rate)
    features = FeatureSet([(table, "sum", 8)])
    call = (features, np.array([1]), np.ones(1, np.int32), None, ones)
    with pytest.raises(ValueError, match="2 learning rates for 1 features"):
        client.update_packed(*call, learning_rates=np.float32([1, 1]))
    with pytest.raises(TypeError):
        client.update_packed(*call, learning_rates=np.ones(1))
    assert (client.read_rows(table, [1]) == 0).all()
