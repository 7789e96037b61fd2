"""Lookups and updates of NumPy arrays, against sums by hand."""

import numpy as np
import pytest

import embla
from embla import Gradient, Lookup


def test_rows_come_in_the_order_of_the_ids(client, make_table):
    table = make_table(init=embla.Uniform(-1, 1))
    all_rows = client.read_rows(table, np.arange(1000))
    (rows,) = client.lookup([Lookup(table, [7, 3, 999, 7])])
    np.testing.assert_array_equal(rows, all_rows[[7, 3, 999, 7]])
    assert rows.dtype == np.float32
    assert len(np.unique(all_rows)) > 7000


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("bags", ["lengths", "offsets"])
def test_bags_are_pooled(client, make_table, pooling, bags):
    table = make_table(init=embla.Uniform(-1, 1))
    ids = np.array([1, 2, 3, 4, 5, 5])
    where = {"lengths": [2, 0, 4]} if bags == "lengths" else {"offsets": [0, 2, 2, 6]}
    (rows,) = client.lookup([Lookup(table, ids, pooling=pooling, **where)])
    weights = client.read_rows(table, ids)
    expected = np.zeros((3, 8), np.float32)
    expected[0] = weights[:2].sum(0)
    expected[2] = weights[2:].sum(0)
    if pooling == "mean":
        expected[0] /= 2
        expected[2] /= 4
    np.testing.assert_allclose(rows, expected, rtol=1e-6, atol=1e-7)


def test_weights_scale_rows(client, make_table):
    table = make_table(init=embla.Constant(2.0))
    (rows,) = client.lookup(
        [Lookup(table, [1, 2], lengths=[2], weights=np.float32([0.5, 3]), pooling="sum")]
    )
    np.testing.assert_allclose(rows, np.full((1, 8), 7.0), rtol=1e-6)


def test_several_features_are_one_call_into_the_callers_arrays(client, make_table):
    narrow, wide = make_table(dim=4), make_table(dim=12, init=embla.Constant(3.0))
    out = np.zeros((2, 12), np.float32)
    rows = client.lookup([Lookup(narrow, [1]), Lookup(wide, [1, 2], out=out)])
    assert rows[1] is out
    assert rows[0].shape == (1, 4)
    np.testing.assert_array_equal(out, np.full((2, 12), 3.0))


def test_features_of_one_table_are_one_step(client, make_table):
    table = make_table(init=embla.Constant(0.0), optimizer=embla.Adagrad(lr=1.0, eps=0.0))
    ones = np.ones((1, 8), np.float32)
    client.update([Gradient(table, [5], ones), Gradient(table, [5], 3 * ones)])
    np.testing.assert_allclose(client.read_rows(table, [5]), -ones, rtol=1e-6)
    np.testing.assert_allclose(client.read_state(table, [5]), 16 * ones, rtol=1e-6)
    assert client.state_floats(table) == 8


def test_pooled_gradients_reach_every_id_of_the_bag(client, make_table):
    table = make_table(init=embla.Constant(0.0))
    gradients = np.stack([np.full(8, 1.0), np.full(8, 10.0)]).astype(np.float32)
    client.update([Gradient(table, [1, 2, 2, 3], gradients, lengths=[2, 2], pooling="sum")])
    rows = client.read_rows(table, [1, 2, 3, 4])
    np.testing.assert_allclose(rows[:, 0], [-1, -11, -10, 0])


def test_wire_formats_are_as_exact_as_they_say(client, make_table, cluster):
    table = make_table(init=embla.Uniform(-1, 1))
    exact = client.read_rows(table, np.arange(100))
    for wire, error in [("fp16", 1e-3), ("bf16", 8e-3), ("int8", 8e-3)]:
        (rows,) = client.lookup([Lookup(table, np.arange(100))], wire=wire)
        np.testing.assert_allclose(rows, exact, atol=error)
        assert not np.array_equal(rows, exact)
    with cluster.connect(wire="fp16") as other:
        (rows,) = other.lookup([Lookup(table, np.arange(100))])
        assert not np.array_equal(rows, exact)


def test_empty_calls_are_calls(client, make_table):
    table = make_table()
    assert client.lookup([]) == []
    (rows,) = client.lookup([Lookup(table, [])])
    assert rows.shape == (0, 8)
    client.update([Gradient(table, [], np.empty((0, 8), np.float32))])


def test_int32_lengths_are_taken_and_negative_ones_refused(client, make_table):
    table = make_table(init=embla.Constant(1.0))
    lengths = np.array([1, 1], np.int32)
    (rows,) = client.lookup([Lookup(table, [1, 2], lengths=lengths, pooling="sum")])
    np.testing.assert_array_equal(rows, np.ones((2, 8)))
    with pytest.raises(embla.InvalidArgumentError, match="negative"):
        client.lookup([Lookup(table, [1], lengths=np.array([-1, 2], np.int32), pooling="sum")])


def test_tables_tell_what_they_are(client, make_table):
    name = make_table(rows=123, dim=5, dtype="bf16", optimizer=embla.Adam())
    info = client.table(name).info
    assert (info.rows, info.dim, info.dtype, info.optimizer) == (123, 5, "bf16", "adam")
    assert info in client.tables()
    assert len(client.table(name)) == 123


def test_a_whole_table_is_read_in_blocks_and_exported(client, make_table, tmp_path):
    table = client.table(make_table(rows=1003, init=embla.Uniform(-1, 1)))
    rows = table.rows()
    np.testing.assert_array_equal(rows, client.read_rows(table.name, np.arange(1003)))
    blocks = list(table.iter_rows(chunk=100))
    assert [len(block) for block in blocks] == [100] * 10 + [3]
    np.testing.assert_array_equal(np.concatenate(blocks), rows)
    table.export_npy(str(tmp_path / "rows.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), rows)


def test_zch_tables_are_looked_into(client, make_table):
    name = make_table(rows=6400, zch=embla.Zch(buckets=4))
    table = client.table(name)
    big = 2**62 + 11
    client.update([Gradient(name, [big], np.ones((1, 8), np.float32))], step=7)
    assert table.info.zch
    found = table.explain_id(big)
    assert found.row is not None
    assert found.last_step == 7
    assert table.survey().residents == 1
    assert table.sweep(older_than_steps=0, at_step=100).evicted == 1
    assert table.explain_id(big).row is None
    with pytest.raises(embla.InvalidArgumentError):
        client.table(make_table()).survey()


def test_evicted_rows_are_read_and_followed(client, make_table):
    name = make_table(rows=64, zch=embla.Zch(buckets=1, eviction_buffer_bytes=1 << 20), dim=4)
    table = client.table(name)
    for id in range(3):
        client.update([Gradient(name, [id], np.ones((1, 4), np.float32))], step=id + 1)
    rows = client.read_rows(name, [0, 1, 2])
    table.sweep(older_than_steps=1, at_step=3)
    gone = {eviction.id: eviction for eviction in table.evictions()}
    assert sorted(gone) == [0, 1]
    assert gone[1].reason == "idle"
    assert gone[1].last_step == 2
    np.testing.assert_array_equal(gone[1].weights, rows[1])
    following = table.evictions(follow=True)
    assert {next(following).id, next(following).id} == {0, 1}
    table.sweep(older_than_steps=0, at_step=9)
    assert next(following).id == 2
    following.close()
    with pytest.raises(embla.FailedPreconditionError):
        list(client.table(make_table(rows=64, zch=embla.Zch(buckets=1))).evictions())


def test_metrics_session_and_plan_are_told(client, make_table):
    table = make_table()
    client.lookup([Lookup(table, [1])])
    assert "embla_" in client.metrics_text()
    assert client.session > 0
    before = client.plan_version
    make_table()
    client.refresh_plan()
    assert client.plan_version > before


def test_replica_groups_are_averaged(cluster, make_table):
    name = make_table(replica_groups=2, init=embla.Constant(0.0))
    with cluster.connect(replica_group=0) as first, cluster.connect(replica_group=1) as second:
        first.update([Gradient(name, [1], np.full((1, 8), 4, np.float32))])
        assert second.read_rows(name, [1])[0, 0] == 0
        (report,) = first.sync([name])
        assert report.table == name
        assert report.divergence_max > 0
        assert second.read_rows(name, [1])[0, 0] == -2
