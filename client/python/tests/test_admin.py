"""Tables, plans, nodes and jobs through embla.Admin."""

import numpy as np
import pytest

import embla
from embla import Gradient


def test_every_field_of_a_spec_reaches_the_plan(cluster, make_table):
    name = make_table(
        rows=500,
        dim=12,
        dtype="fp16",
        optimizer=embla.Adam(lr=0.25, beta1=0.5, beta2=0.75, eps=0.125, weight_decay=0.5,
                             weight_decay_mode="decoupled", gradient_clip=2.0,
                             bias_correction="step"),
        init=embla.Normal(1.0, 2.0),
        seed=2**63 + 5,
        rounding="stochastic",
        bounds="ignore",
        nan_policy="allow",
        row_granules=100,
    )  # fmt: skip
    (table,) = [t for t in cluster.admin.plan()["tables"] if t["spec"]["name"] == name]
    spec = table["spec"]
    assert spec["optimizer"] == {
        "kind": "adam", "learning_rate": 0.25, "eps": 0.125, "beta1": 0.5, "beta2": 0.75,
        "initial_accumulator": 0.0, "weight_decay": 0.5, "weight_decay_mode": "decoupled",
        "gradient_clip": 2.0, "bias_correction": "step",
    }  # fmt: skip
    assert spec["init"] == {"kind": "normal", "a": 1.0, "b": 2.0}
    assert (spec["rows"], spec["dim"], spec["dtype"]) == (500, 12, "fp16")
    assert (spec["seed"], spec["rounding"], spec["bounds"]) == (2**63 + 5, "stochastic", "ignore")
    assert (spec["nan_policy"], spec["row_granules"]) == ("allow", 100)
    assert table["sharding"] == "row_wise"


@pytest.mark.parametrize(
    "init", [embla.Default(), embla.Constant(0.5), embla.Uniform(-0.25, 0.25), embla.Normal(1, 0.1)]
)
@pytest.mark.parametrize(
    "optimizer",
    [
        embla.SGD(lr=0.5),
        embla.Adagrad(initial_accumulator=0.5),
        embla.RowwiseAdagrad(),
        embla.Adam(),
    ],
)
def test_all_rules_are_known(client, make_table, init, optimizer):
    table = make_table(init=init, optimizer=optimizer)
    before = client.read_rows(table, [1])
    client.update([Gradient(table, [1], np.ones((1, 8), np.float32))])
    assert (client.read_rows(table, [1]) < before).all()


def test_zch_policies_are_known(client, make_table):
    for zch in (
        embla.Zch(policy="lfu"),
        embla.Zch(policy="distance_lfu", distance_exponent=2),
        embla.Zch(policy="ttl", ttl_steps=10, evict_unexpired=False),
        embla.Zch(admission="count", admission_count=2),
        embla.Zch(admission="probability", admission_probability=0.5),
        embla.Zch(reserved_lanes=2, unseen="default"),
        embla.Zch(buckets=2, unseen="zero", eviction_buffer_bytes=1 << 20),
    ):
        assert client.table(make_table(rows=6400, zch=zch)).info.zch


def test_wrong_specs_are_refused_by_field(cluster, make_table):
    with pytest.raises(ValueError, match="dim"):
        cluster.admin.create_table(embla.TableSpec("wrong", 10, 0))
    with pytest.raises(ValueError, match="sharding"):
        cluster.admin.create_table(embla.TableSpec("wrong", 10, 4), "diagonal")
    name = make_table()
    with pytest.raises(embla.AlreadyExistsError, match=name) as caught:
        cluster.admin.create_table(embla.TableSpec(name, 10, 4))
    assert caught.value.code == "ALREADY_EXISTS"
    with pytest.raises(embla.TableNotFoundError):
        cluster.admin.drop_table("nowhere")


def test_tables_are_created_together_or_not_at_all(cluster):
    specs = [embla.TableSpec(f"together{i}", 100, 8) for i in range(3)]
    before = cluster.admin.status().plan_version
    created = cluster.admin.create_tables([specs[0], (specs[1], "row_wise")])
    assert (created.plan_version, created.existed) == (before + 1, [])
    with pytest.raises(embla.AlreadyExistsError, match="together0"):
        cluster.admin.create_tables(specs)
    again = cluster.admin.create_tables(specs, if_not_exists=True)
    assert (again.plan_version, again.existed) == (before + 2, ["together0", "together1"])
    other = embla.TableSpec("together1", 200, 8)
    with pytest.raises(embla.FailedPreconditionError, match="rows is 100, asked for is 200"):
        cluster.admin.create_tables([embla.TableSpec("more", 1, 4), other], if_not_exists=True)
    names = [table["spec"]["name"] for table in cluster.admin.plan()["tables"]]
    assert "more" not in names
    for spec in specs:
        cluster.admin.drop_table(spec.name)


def test_explain_creates_nothing(cluster):
    change = cluster.admin.explain(embla.TableSpec("maybe", 1000, 16), "column_wise")
    assert change.plan["sharding"] == "column_wise"
    assert all(table["spec"]["name"] != "maybe" for table in cluster.admin.plan()["tables"])


def test_hyper_parameters_change_while_training_goes_on(cluster, client, make_table, await_for):
    table = make_table(init=embla.Constant(0.0), optimizer=embla.SGD(lr=1.0))
    change = cluster.admin.set_table(table, learning_rate=0.5, bounds="ignore")
    assert change.plan["spec"]["optimizer"]["learning_rate"] == 0.5

    def have_it():
        nodes = [node for node in cluster.admin.nodes() if node.live]
        return all(node.plan_version >= change.plan_version for node in nodes)

    await_for(have_it, 30, "all nodes have the plan")
    client.update([Gradient(table, [1], np.ones((1, 8), np.float32))])
    assert client.read_rows(table, [1])[0, 0] == -0.5
    with pytest.raises(ValueError):
        cluster.admin.set_table(table, dim=3)


def test_a_table_says_what_its_updates_survive(cluster, client, make_table):
    table = make_table(init=embla.Constant(0.0), durability="synced")
    (plan,) = [t for t in cluster.admin.plan()["tables"] if t["spec"]["name"] == table]
    assert plan["spec"]["durability"] == "synced"
    gradient = Gradient(table, [1], np.ones((1, 8), np.float32))
    client.update([gradient])
    change = cluster.admin.set_table(table, durability="queued")
    assert change.plan["spec"]["durability"] == "queued"
    client.update([gradient])
    assert client.read_rows(table, [1])[0, 0] == -2.0
    assert "durability" not in cluster.admin.set_table(table, durability="node").plan["spec"]
    with pytest.raises(ValueError, match="node, queued, written, synced"):
        cluster.admin.set_table(table, durability="none")


def test_jobs_move_rows_between_nodes(cluster, client, make_table):
    table = make_table(rows=10_000, init=embla.Uniform(-1, 1))
    before = client.table(table).rows()
    planned = cluster.admin.reshard(table, 1, dry_run=True)
    assert planned.id == 0
    assert planned.moves
    job = cluster.admin.wait(cluster.admin.reshard(table, 1), timeout=30)
    assert (job.state, job.units_moved) == ("done", job.units_total)
    assert job.started is not None
    assert job.ended is not None
    assert job.ended >= job.started
    assert job.id in [other.id for other in cluster.admin.jobs()]
    np.testing.assert_array_equal(client.table(table).rows(), before)


def test_a_node_is_drained_and_comes_back(cluster, client, make_table):
    table = make_table()
    before = client.table(table).rows()
    cluster.admin.wait(cluster.admin.drain("node2"), timeout=30)
    nodes = {node.name: node for node in cluster.admin.nodes()}
    assert nodes["node2"].drained
    assert not nodes["node1"].drained
    cluster.admin.undrain("node2")
    assert not {node.name: node for node in cluster.admin.nodes()}["node2"].drained
    job = cluster.admin.rebalance()
    if job.id:
        cluster.admin.wait(job, timeout=30)
    np.testing.assert_array_equal(client.table(table).rows(), before)


def test_the_status_counts(cluster, make_table):
    before = cluster.admin.status()
    make_table()
    after = cluster.admin.status()
    assert after.tables == before.tables + 1
    assert (after.nodes_live, after.nodes_total) == (2, 2)
    assert after.version.split("+")[0] == embla.__version__
    assert after.cluster_id == before.cluster_id


def test_a_closed_admin_says_so(cluster):
    with embla.Admin(cluster.admin_address) as admin:
        admin.status()
    with pytest.raises(embla.ClientClosedError):
        admin.status()
    admin.close()
