"""An array of a wrong kind raises TypeError, and nothing is written or sent."""

import numpy as np
import pytest

import embla
from embla import FeatureSet, Gradient, Lookup


@pytest.fixture
def table(make_table):
    return make_table(rows=100, dim=4, init=embla.Constant(1.0))


def read_only(array):
    array.flags.writeable = False
    return array


IDS = np.array([1, 2])
ROWS = np.zeros((2, 4), np.float32)
WRONG_IDS = {
    "int32": np.array([1, 2], np.int32),
    "float": np.array([1.0, 2.0]),
    "gaps": np.arange(4)[::2],
    "backwards": np.arange(2)[::-1],
    "two dimensions": np.array([[1, 2]]),
    "bytes": np.array([1, 2], ">i8"),
    "unsigned": np.array([1, 2], np.uint64),
}
WRONG_ROWS = {
    "float64": np.zeros((2, 4)),
    "float16": np.zeros((2, 4), np.float16),
    "transposed": np.zeros((4, 2), np.float32).T,
    "gaps between columns": np.zeros((2, 8), np.float32)[:, ::2],
    "three dimensions": np.zeros((1, 2, 4), np.float32),
}
ONE_ROW = np.zeros(4, np.float32)
WRONG_OUT = {
    **WRONG_ROWS,
    "read-only": read_only(np.zeros((2, 4), np.float32)),
    "one memory for all rows": np.lib.stride_tricks.as_strided(ONE_ROW, (2, 4), (0, 4)),
    "a list": [[0.0] * 4] * 2,
}


def untouched(array):
    return bool((np.asarray(array, np.float64) == 0).all())


@pytest.mark.parametrize("kind", WRONG_OUT)
def test_a_lookup_into_a_wrong_array_writes_nothing(client, table, kind):
    out = WRONG_OUT[kind]
    with pytest.raises(TypeError):
        client.lookup([Lookup(table, IDS, out=out)])
    for call in (client.lookup_packed, client.lookup_packed_now):
        with pytest.raises(TypeError):
            call(FeatureSet([(table, "sum", 4)]), IDS, np.ones(2, np.int32), None, out)
    with pytest.raises(TypeError):
        client.read_rows(table, IDS, out)
    assert untouched(out)


def test_rows_of_the_numpy_level_have_no_gaps(client, table):
    wide = np.zeros((2, 9), np.float32)
    with pytest.raises(TypeError, match="feature 0: out must be a contiguous array of float32"):
        client.lookup([Lookup(table, IDS, out=wide[:, :4])])
    assert untouched(wide)


@pytest.mark.parametrize("kind", WRONG_IDS)
def test_wrong_ids_are_not_converted(client, table, kind):
    ids = WRONG_IDS[kind]
    with pytest.raises(TypeError):
        client.lookup([Lookup(table, ids)])
    for call in (client.lookup_packed, client.lookup_packed_now):
        with pytest.raises(TypeError):
            call(FeatureSet([(table, "sum", 4)]), ids, np.ones(2, np.int32), None, ROWS.copy())
    with pytest.raises(TypeError):
        client.update([Gradient(table, ids, ROWS)])
    with pytest.raises(TypeError):
        client.read_rows(table, ids)


@pytest.mark.parametrize("kind", WRONG_ROWS)
def test_wrong_gradients_change_nothing(client, table, kind):
    gradients = WRONG_ROWS[kind] + WRONG_ROWS[kind].dtype.type(1)
    if kind in ("transposed", "gaps between columns"):
        gradients = np.ones(WRONG_ROWS[kind].base.shape, np.float32)
        gradients = gradients.T if kind == "transposed" else gradients[:, ::2]
    with pytest.raises(TypeError):
        client.update([Gradient(table, IDS, gradients)])
    with pytest.raises(TypeError):
        client.update_packed(
            FeatureSet([(table, "sum", 4)]), IDS, np.ones(2, np.int32), None, gradients
        )
    np.testing.assert_array_equal(client.read_rows(table, IDS), np.ones((2, 4)))


@pytest.mark.parametrize(
    "lengths",
    [np.ones(2, np.int16), np.ones(2, np.float32), np.ones(4, np.int32)[::2], np.ones(2, np.uint64),
     np.ones((1, 2), np.int32), [1, 1]],
    ids=["int16", "float32", "gaps", "uint64", "two dimensions", "a list"],
)  # fmt: skip
def test_wrong_lengths_are_not_converted(client, table, lengths):
    out = ROWS.copy()
    with pytest.raises(TypeError):
        client.lookup_packed(FeatureSet([(table, "sum", 4)]), IDS, lengths, None, out)
    assert untouched(out)


@pytest.mark.parametrize("weights", [np.ones(2), np.ones(4, np.float32)[::2], 1.0])
def test_wrong_weights_are_not_converted(client, table, weights):
    out = ROWS.copy()
    with pytest.raises(TypeError):
        client.lookup_packed(
            FeatureSet([(table, "sum", 4)]), IDS, np.ones(2, np.int32), weights, out
        )
    assert untouched(out)


def test_inputs_may_be_read_only(client, table):
    ids = read_only(np.array([1, 2]))
    lengths = read_only(np.ones(2, np.int32))
    gradients = read_only(np.ones((2, 4), np.float32))
    out = np.zeros((2, 4), np.float32)
    features = FeatureSet([(table, "sum", 4)])
    client.lookup_packed(features, ids, lengths, None, out).wait()
    assert (out == 1).all()
    client.update_packed(features, ids, lengths, None, gradients).wait()
    client.update([Gradient(table, ids, gradients)])
    assert (client.read_rows(table, ids) == -1).all()


def test_rows_are_written_in_place(client, table):
    out = np.zeros((2, 4), np.float32)
    address = out.ctypes.data
    client.lookup([Lookup(table, IDS, out=out)])
    assert (out == 1).all()
    assert out.ctypes.data == address


def test_none_and_nonsense_are_type_errors(client, table):
    features = FeatureSet([(table, "sum", 4)])
    for ids, lengths, out in [
        (None, np.ones(2, np.int32), ROWS.copy()),
        (IDS, None, ROWS.copy()),
        (IDS, np.ones(2, np.int32), None),
        ("ids", "lengths", "out"),
    ]:
        for call in (client.lookup_packed, client.lookup_packed_now):
            with pytest.raises(TypeError):
                call(features, ids, lengths, None, out)
    with pytest.raises(TypeError):
        client.lookup_packed(None, IDS, np.ones(2, np.int32), None, ROWS.copy())
