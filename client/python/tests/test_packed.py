"""Packed calls give what calls feature by feature give, whatever the shape of their arrays."""

import numpy as np
import pytest

import embla
from embla import FeatureSet, Gradient, Lookup

DIMS = (8, 4, 8)


@pytest.fixture
def tables(make_table):
    return [make_table(dim=dim, init=embla.Uniform(-1, 1), seed=dim) for dim in DIMS[:2]]


@pytest.fixture
def features(tables):
    return FeatureSet([(tables[0], "sum", 8), (tables[1], "mean", 4), (tables[0], "sum", 8)])


def make_batch(rng, features, bags, dtype=np.int32):
    lengths = rng.integers(0, 5, features * bags).astype(dtype)
    ids = rng.integers(0, 1000, int(lengths.sum()))
    return ids, lengths


def expected_rows(client, tables, ids, lengths, sizes, weights=None):
    """Feature by feature."""
    names = [tables[0], tables[1], tables[0]]
    poolings = ["sum", "mean", "sum"]
    lookups = []
    bag = first = 0
    for name, pooling, size in zip(names, poolings, sizes, strict=True):
        own = lengths[bag : bag + size].astype(np.uint32)
        count = int(own.sum())
        part = slice(first, first + count)
        lookups.append(Lookup(name, ids[part], lengths=own, pooling=pooling,
                              weights=None if weights is None else weights[part]))  # fmt: skip
        bag += size
        first += count
    return client.lookup(lookups)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("bags", [0, 1, 17])
def test_pooled_rows_are_columns_of_one_array(client, tables, features, rng, dtype, bags):
    ids, lengths = make_batch(rng, 3, bags, dtype)
    out = np.full((bags, 20), np.nan, np.float32)
    client.lookup_packed(features, ids, lengths, None, out).wait()
    expected = expected_rows(client, tables, ids, lengths, [bags] * 3)
    np.testing.assert_array_equal(out, np.concatenate(expected, axis=1))


def test_rows_may_lie_apart(client, tables, features, rng):
    ids, lengths = make_batch(rng, 3, 9)
    wide = np.full((9, 31), 7, np.float32)
    client.lookup_packed(features, ids, lengths, None, wide[:, 5:25]).wait()
    expected = expected_rows(client, tables, ids, lengths, [9] * 3)
    np.testing.assert_array_equal(wide[:, 5:25], np.concatenate(expected, axis=1))
    assert (wide[:, :5] == 7).all()
    assert (wide[:, 25:] == 7).all()


def test_features_may_differ_in_their_number_of_bags(client, tables, features, rng):
    sizes = np.array([5, 0, 11])
    lengths = rng.integers(0, 4, 16).astype(np.int32)
    ids = rng.integers(0, 1000, int(lengths.sum()))
    out = np.full(5 * 8 + 11 * 8, np.nan, np.float32)
    client.lookup_packed(features, ids, lengths, None, out, batch_sizes=sizes).wait()
    expected = expected_rows(client, tables, ids, lengths, sizes)
    np.testing.assert_array_equal(out, np.concatenate([rows.ravel() for rows in expected]))
    before = [client.table(name).rows() for name in tables]
    client.update_packed(features, ids, lengths, None, np.ones_like(out), batch_sizes=sizes).wait()
    counts = np.bincount(ids, minlength=1000)
    np.testing.assert_allclose(before[0][:, 0] - client.table(tables[0]).rows()[:, 0], counts,
                               atol=1e-5)  # fmt: skip
    np.testing.assert_array_equal(before[1], client.table(tables[1]).rows())


def test_weights_belong_to_ids(client, make_table, rng):
    table = make_table(init=embla.Uniform(-1, 1))
    features = FeatureSet([(table, "sum", 8), (table, "sum", 8)])
    ids, lengths = make_batch(rng, 2, 6)
    weights = rng.random(len(ids)).astype(np.float32)
    out = np.empty((6, 16), np.float32)
    client.lookup_packed(features, ids, lengths, weights, out).wait()
    rows = client.read_rows(table, ids) * weights[:, None]
    bags = np.split(rows, np.cumsum(lengths)[:-1])
    sums = np.stack([bag.sum(0) for bag in bags])
    np.testing.assert_allclose(out, np.concatenate([sums[:6], sums[6:]], axis=1), atol=1e-5)


def test_unpooled_rows_follow_each_other(client, make_table, rng):
    tables = [make_table(init=embla.Uniform(-1, 1), seed=seed) for seed in (1, 2)]
    features = FeatureSet([(name, "none", 8) for name in tables])
    ids, lengths = make_batch(rng, 2, 7)
    half = int(lengths[:7].sum())
    out = np.empty((len(ids), 11), np.float32)[:, :8]
    client.lookup_packed(features, ids, lengths, None, out).wait()
    np.testing.assert_array_equal(out[:half], client.read_rows(tables[0], ids[:half]))
    np.testing.assert_array_equal(out[half:], client.read_rows(tables[1], ids[half:]))


def test_gradients_with_gaps_equal_those_without(client, tables, features, rng, make_table):
    ids, lengths = make_batch(rng, 3, 9)
    wide = rng.standard_normal((9, 31)).astype(np.float32)
    before = [client.table(name).rows() for name in tables]
    client.update_packed(features, ids, lengths, None, wide[:, 5:25]).wait()
    moved = [old - client.table(name).rows() for old, name in zip(before, tables, strict=True)]
    expected = [np.zeros_like(rows) for rows in before]
    first = 0
    columns = [(0, 5, 8), (1, 13, 4), (0, 17, 8)]
    for bag, length in enumerate(lengths):
        table, column, dim = columns[bag // 9]
        gradient = wide[bag % 9, column : column + dim]
        for id in ids[first : first + length]:
            expected[table][id] += gradient / length if table == 1 else gradient
        first += length
    for got, want in zip(moved, expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-6)


def test_updates_of_single_calls_and_packed_ones_are_the_same_bits(client, make_table, rng):
    first, second = (make_table(optimizer=embla.RowwiseAdagrad(lr=0.1), seed=3) for _ in range(2))
    ids, lengths = make_batch(rng, 2, 12)
    gradients = rng.standard_normal((12, 16)).astype(np.float32)
    half = int(lengths[:12].sum())
    packed = FeatureSet([(first, "sum", 8), (first, "sum", 8)])
    client.update_packed(packed, ids, lengths, None, gradients, step=1).wait()
    client.update(
        [
            Gradient(second, ids[:half], np.ascontiguousarray(gradients[:, :8]),
                     lengths=lengths[:12], pooling="sum"),
            Gradient(second, ids[half:], np.ascontiguousarray(gradients[:, 8:]),
                     lengths=lengths[12:], pooling="sum"),
        ],
        step=1,
    )  # fmt: skip
    np.testing.assert_array_equal(client.table(first).rows(), client.table(second).rows())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": np.array([1, 1, 1, 1], np.int32)}, "not a multiple of 3"),
        ({"lengths": np.array([1, 1, 2], np.int32)}, "sum to more than"),
        ({"lengths": np.array([1, 1, 0], np.int32)}, "sum to 2, there are 3 ids"),
        ({"lengths": np.array([1, -1, 3], np.int32)}, "negative"),
        ({"lengths": np.array([1, -1, 3])}, "negative"),
        ({"lengths": np.array([1, 2**32, 1])}, "above 2"),
        ({"out": np.zeros((1, 19), np.float32)}, "1 x 19, must be 1 x 20"),
        ({"out": np.zeros((2, 20), np.float32)}, "2 x 20, must be 1 x 20"),
        ({"weights": np.ones(2, np.float32)}, "2 weights for 3 ids"),
        ({"batch_sizes": np.array([1, 1])}, "2 batch sizes for 3 features"),
        ({"batch_sizes": np.array([1, 1, 2])}, "do not sum"),
        ({"batch_sizes": np.array([1, 1, 0])}, "sum to 2"),
        ({"batch_sizes": np.array([1, 1, 1])}, "one dimension"),
        ({"wire": "fp8"}, "fp32, fp16, bf16, int8"),
        ({"timeout": -1.0}, "timeout"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_what_is_wrong(client, features, change, message):
    call = {
        "ids": np.array([1, 2, 3]),
        "lengths": np.array([1, 1, 1], np.int32),
        "weights": None,
        "out": np.zeros((1, 20), np.float32),
        **change,
    }
    with pytest.raises(ValueError, match=message) as caught:
        client.lookup_packed(features, **call)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_feature_sets_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="needs a feature"):
        FeatureSet([])
    with pytest.raises(ValueError, match="dim is 0"):
        FeatureSet([("t", "sum", 0)])
    with pytest.raises(ValueError, match="a FeatureSet each"):
        FeatureSet([("t", "sum", 4), ("u", "none", 4)])
    with pytest.raises(ValueError, match="has dim 8"):
        FeatureSet([("t", "none", 4), ("u", "none", 8)])
    with pytest.raises(ValueError, match="none, sum, mean"):
        FeatureSet([("t", "max", 4)])
    features = FeatureSet([("t", "sum", 4), ("u", "mean", 8)])
    assert (len(features), features.columns, features.pooled) == (2, 12, True)
    assert features.tables == ["t", "u"]
