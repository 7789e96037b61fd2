"""All rows of a table, stretch by stretch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import embla

ODD_IDS = np.array([-(1 << 62), -5, 0, 7, 10**15, (1 << 62) + 1])


def write(client, table, ids, rng):
    info = client.table(table).info
    rows = rng.random((len(ids), info.dim), dtype=np.float32)
    state = rng.random((len(ids), client.state_floats(table)), dtype=np.float32)
    client.write_rows(table, ids, rows, state if state.size else None)
    return rows, state


def test_every_row_comes_once_and_in_order(client, make_table, rng):
    # 16 MiB are some 65,000 rows of 64 floats: more than one stretch.
    table = make_table(rows=70_000, dim=64, init=embla.Uniform(-1, 1))
    stretches = list(client.table(table).scan())
    assert len(stretches) > 1
    ids = np.concatenate([stretch.ids for stretch in stretches])
    np.testing.assert_array_equal(ids, np.arange(70_000))
    assert [s.first_row for s in stretches] == [s.ids[0] for s in stretches]
    assert all(stretch.state is None for stretch in stretches)
    weights = np.concatenate([stretch.weights for stretch in stretches])
    np.testing.assert_array_equal(weights, client.read_rows(table, ids))


@pytest.mark.parametrize("zch", [None, embla.Zch()], ids=["dense", "zch"])
@pytest.mark.parametrize(
    "optimizer", [embla.SGD(), embla.RowwiseAdagrad(), embla.Adam()], ids=lambda o: o.kind
)
def test_state_comes_with_its_rows(client, make_table, rng, zch, optimizer):
    table = make_table(rows=6400, zch=zch, optimizer=optimizer)
    ids = np.arange(6) if zch is None else ODD_IDS
    rows, state = write(client, table, ids, rng)
    found = {
        id: (stretch.weights[i], stretch.state[i])
        for stretch in client.table(table).scan(with_state=True)
        for i, id in enumerate(stretch.ids.tolist())
    }
    assert set(ids.tolist()) <= set(found)
    assert zch is None or len(found) == len(ids)
    for position, id in enumerate(ids.tolist()):
        np.testing.assert_array_equal(found[id][0], rows[position])
        np.testing.assert_array_equal(found[id][1], state[position])


def test_a_table_without_ids_has_no_rows(client, make_table):
    table = make_table(rows=6400, zch=embla.Zch(), optimizer=embla.Adam())
    for stretch in client.table(table).scan(with_state=True):
        assert (stretch.weights.shape, stretch.state.shape) == ((0, 8), (0, 17))


def test_a_scan_may_be_left(client, make_table):
    table = make_table(rows=300_000, dim=64)
    (first,) = itertools.islice(client.table(table).scan(), 1)
    assert len(first.ids) < 300_000
    client.close(timeout=10)


def test_the_error_of_a_scan_is_raised(cluster, client, make_table):
    table = client.table(make_table())
    client.close()
    with pytest.raises(embla.ClientClosedError):
        next(table.scan())
