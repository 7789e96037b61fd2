"""LocalCluster: it starts, it ends whatever ends its process, and it says why it cannot."""

import atexit
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import embla
from embla import Gradient, Lookup
from embla.local_cluster import find_program


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as status:
            return status.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_nodes_and_devices_are_as_asked():
    with embla.LocalCluster(nodes=3, devices=1) as cluster:
        nodes = cluster.admin.nodes()
        assert sorted(node.name for node in nodes) == ["node1", "node2", "node3"]
        assert [len(node.devices) for node in nodes] == [1, 1, 1]
        assert all(node.live for node in nodes)
        folder = cluster.data_dir
        pids = [shard.pid for shard in cluster.shards.values()]
        assert all(map(alive, pids))
    assert not any(map(alive, pids))
    assert not folder.exists()
    with pytest.raises(embla.ClientClosedError):
        cluster.connect()
    cluster.stop()


def test_rows_stay_in_a_given_folder(tmp_path):
    folder = tmp_path / "cluster"
    with embla.LocalCluster(nodes=1, devices=1, data_dir=folder) as cluster:
        cluster.admin.create_table(
            embla.TableSpec("t", 10, 4, optimizer=embla.SGD(lr=1.0), init=embla.Constant(1.0))
        )
        with cluster.connect() as client:
            client.update([Gradient("t", [1], np.ones((1, 4), np.float32))])
        with pytest.raises(embla.ClusterStartError, match="another cluster"):
            embla.LocalCluster(data_dir=folder)
    with (
        embla.LocalCluster(nodes=1, devices=1, data_dir=folder) as cluster,
        cluster.connect() as client,
    ):
        assert client.read_rows("t", [1, 2])[:, 0].tolist() == [0, 1]
    assert folder.exists()


CHILD = """
    import json, os, sys, threading, time
    import embla
    cluster = embla.LocalCluster(nodes=2, devices=1)
    pids = [cluster.coordinator_process.pid] + [shard.pid for shard in cluster.shards.values()]
    print(json.dumps({"pids": pids, "folder": str(cluster.data_dir)}), flush=True)
"""


def start_python(code):
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD + code)], stdout=subprocess.PIPE, text=True
    )
    return child, json.loads(child.stdout.readline())


@pytest.mark.parametrize(
    "end",
    ["SIGKILL", "SIGTERM", "os._exit(3)", "os.abort()", "sys.exit(0)", "raise ValueError", "pass"],
)
def test_the_children_end_with_python_however_it_ends(end, await_for):
    if end.startswith("SIG"):
        child, started = start_python("    time.sleep(60)\n")
        assert all(map(alive, started["pids"]))
        child.send_signal(getattr(signal, end))
    else:
        child, started = start_python(f"    {end}\n")
    child.wait(10)
    child.stdout.close()
    await_for(lambda: not any(map(alive, started["pids"])), 15, "the end of the children")


def test_the_end_of_the_thread_that_started_a_cluster_is_not_its_end(await_for):
    child, _ = start_python(
        """
    threads = []
    def start():
        threads.append(embla.LocalCluster(nodes=1, devices=1))
    worker = threading.Thread(target=start)
    worker.start()
    worker.join()
    print(threads[0].shards["node1"].pid, flush=True)
    time.sleep(60)
    """
    )
    pid = int(child.stdout.readline())
    for _ in range(20):
        assert alive(pid)
        assert child.poll() is None
        os.sched_yield()
    child.kill()
    child.wait()
    child.stdout.close()
    await_for(lambda: not alive(pid), 15, "the end of the shard server")


def test_what_a_killed_process_left_is_deleted_by_the_next(await_for):
    child, started = start_python("    time.sleep(60)\n")
    child.kill()
    child.wait()
    child.stdout.close()
    assert os.path.exists(started["folder"])
    await_for(lambda: not any(map(alive, started["pids"])), 15, "the end of the children")
    with embla.LocalCluster(nodes=1, devices=1):
        assert not os.path.exists(started["folder"])


def test_a_forked_worker_does_not_keep_the_cluster(await_for):
    child, started = start_python(
        """
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    time.sleep(60)
    """
    )
    child.kill()
    child.wait()
    child.stdout.close()
    await_for(lambda: not any(map(alive, started["pids"])), 15, "the end of the children")
    for entry in os.listdir("/proc"):
        if entry.isdigit() and started["folder"] in _open_files(entry):
            os.kill(int(entry), signal.SIGKILL)


def _open_files(pid):
    try:
        return " ".join(
            os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")
        )
    except OSError:
        return ""


def test_a_forked_child_that_exits_does_not_end_the_cluster():
    with embla.LocalCluster(nodes=1, devices=1) as cluster:
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            try:
                cluster.stop()
                atexit._run_exitfuncs()
                del cluster
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert alive(cluster.shards["node1"].pid)
        with cluster.connect() as client:
            assert client.tables() == []
        assert cluster.data_dir.exists()


# ---------------------------------------------------------------------- programs


def write_program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_programs_of_another_version_are_refused(tmp_path, monkeypatch):
    write_program(tmp_path, "embla-coordinator", "echo 9.9.9")
    monkeypatch.setenv("EMBLA_BIN_DIR", str(tmp_path))
    with pytest.raises(embla.ClusterStartError, match=r"version '9\.9\.9', the package"):
        embla.LocalCluster()


def test_missing_programs_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("EMBLA_BIN_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(embla.ClusterStartError, match="embla-coordinator is neither"):
        embla.LocalCluster()


def test_programs_come_from_the_package_then_the_folder_then_the_path(tmp_path, monkeypatch):
    package, folder, path = (tmp_path / name / "bin" for name in ("package", "folder", "path"))
    monkeypatch.setattr("embla.local_cluster.__file__", str(package.parent / "local_cluster.py"))
    monkeypatch.setenv("EMBLA_BIN_DIR", str(folder))
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    for place in (path, folder, package):
        place.mkdir(parents=True)
        write_program(
            place, "embla-shard", f"echo embla-shard {embla.__version__}+12ab; echo build: Debug"
        )
        assert find_program("embla-shard") == str(place / "embla-shard")


def test_a_program_that_ends_shows_the_end_of_its_log(tmp_path, monkeypatch):
    for name in ("embla-coordinator", "embla-shard"):
        write_program(
            tmp_path,
            name,
            f'[ "$1" = --version ] && echo {name} {embla.__version__} && exit\n'
            "for i in $(seq 40); do echo line $i; done\nexit 7",
        )
    monkeypatch.setenv("EMBLA_BIN_DIR", str(tmp_path))
    with pytest.raises(embla.ClusterStartError, match="coordinator ended with 7") as caught:
        embla.LocalCluster()
    lines = str(caught.value).splitlines()[1:]
    assert lines == [f"line {number}" for number in range(21, 41)]


def test_a_program_that_does_not_serve_is_given_up(tmp_path, monkeypatch):
    for name in ("embla-coordinator", "embla-shard"):
        write_program(
            tmp_path,
            name,
            f'[ "$1" = --version ] && echo {name} {embla.__version__} && exit\n'
            "echo waiting\nexec sleep 60",
        )
    monkeypatch.setenv("EMBLA_BIN_DIR", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(embla.ClusterStartError, match="does not serve:\nwaiting"):
        embla.LocalCluster(start_timeout=0.5)
    assert time.monotonic() - start < 5


# ---------------------------------------------------------------------- faults


def test_a_killed_shard_loses_no_update(await_for):
    with embla.LocalCluster(nodes=2, devices=1) as cluster:
        cluster.admin.create_table(
            embla.TableSpec("t", 1000, 4, optimizer=embla.SGD(lr=1.0), init=embla.Constant(0.0)),
            "row_wise",
        )
        ones = np.ones((100, 4), np.float32)
        counts = np.zeros(1000)
        rng = np.random.default_rng(1)
        with cluster.connect(timeout=60.0, retry_budget_ratio=1.0) as client:
            for step in range(60):
                ids = rng.choice(1000, 100, replace=False)
                tickets = [client.update_async([Gradient("t", ids, ones)])]
                if step in (20, 40):
                    name = "node1" if step == 20 else "node2"
                    cluster.shards[name].kill()
                    cluster.start_shard(name)
                for ticket in tickets:
                    ticket.wait()
                np.add.at(counts, ids, 1)
            rows = client.table("t").rows()
        np.testing.assert_array_equal(rows, -np.repeat(counts[:, None], 4, axis=1))


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "running"])
def test_a_coordinator_comes_back_with_its_plan_and_at_its_address(killed):
    with embla.LocalCluster(nodes=2, devices=1) as cluster, cluster.connect() as client:
        cluster.admin.create_table(embla.TableSpec("before", 1000, 4), "row_wise")
        addresses = cluster.coordinator, cluster.admin_address
        first = cluster.coordinator_process
        if killed:
            first.kill()
            client.lookup([Lookup("before", [5])])
        cluster.restart_coordinator()
        assert not alive(first.pid)
        assert (cluster.coordinator, cluster.admin_address) == addresses
        cluster.admin.create_table(embla.TableSpec("after", 1000, 4), "row_wise")
        client.refresh_plan()
        assert {table.name for table in client.tables()} == {"before", "after"}
        client.lookup([Lookup("after", [5])])


def test_a_table_reshards_under_a_training_loop():
    with embla.LocalCluster(nodes=4, devices=1) as cluster:
        cluster.admin.create_table(
            embla.TableSpec("t", 1000, 4, optimizer=embla.SGD(lr=1.0), init=embla.Constant(0.0)),
            embla.Placement("row_wise", nodes=["node1", "node2"]),
        )
        ones = np.ones((1000, 4), np.float32)
        with cluster.connect() as client:
            steps = 0
            for shards in (4, 3):
                job = cluster.admin.reshard("t", shards)
                while not cluster.admin.job(job.id).is_over:
                    client.update([Gradient("t", np.arange(1000), ones)])
                    steps += 1
                assert cluster.admin.wait(job, timeout=10).state == "done"
            np.testing.assert_array_equal(client.table("t").rows(), np.full((1000, 4), -steps))
            (rows,) = client.lookup([Lookup("t", [5])])
            assert rows[0, 0] == -steps
