"""Effects of a process on its clients: signals, forks, exits, thousands of connections."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import embla
from embla import Lookup

SLEEPING_NODE = """
    import os, signal, sys, threading, time
    import embla, numpy as np
    from halting import halt
    cluster = embla.LocalCluster(nodes=1, devices=1)
    cluster.admin.create_table(embla.TableSpec("t", 1000, 4))
    client = cluster.connect(timeout=60.0)
    client.lookup([embla.Lookup("t", [1])])
    halt(cluster.shards["node1"])
"""


def run_python(code, timeout=30.0):
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=timeout, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        "client.lookup([embla.Lookup('t', [1])])",
        "client.update_async([embla.Gradient('t', [1], np.ones((1, 4), np.float32))]).wait()",
        "client.read_rows('t', [1])",
        "client.lookup_packed_now(embla.FeatureSet([('t', 'none', 4)]), np.array([1]),"
        " np.ones(1, np.int32), None, np.zeros((1, 4), np.float32))",
        "client.close(timeout=60)",
        "embla.connect('127.0.0.1:1', timeout=60)",
        "embla.Admin('127.0.0.1:1', timeout=60)",
    ],
)
def test_ctrl_c_ends_a_wait_within_a_second(call):
    ran = run_python(
        SLEEPING_NODE
        + f"""
    ticket = client.lookup_async([embla.Lookup("t", [1])])
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    try:
        {call}
        print("the call came back")
    except KeyboardInterrupt:
        waited = time.monotonic() - start
        print("interrupted", waited < 1.3, waited)
    sys.stdout.flush()
    cluster.shards["node1"].send_signal(signal.SIGCONT)
    """
    )
    assert ran.stdout.startswith("interrupted True"), ran.stdout + ran.stderr
    assert ran.returncode == 0, ran.stderr


def test_an_exit_with_calls_in_flight_is_clean():
    for last_words in ("", "del client", "raise SystemExit(0)", "client.close()"):
        ran = run_python(
            f"""
            import embla, numpy as np
            cluster = embla.LocalCluster(nodes=1, devices=1)
            cluster.admin.create_table(embla.TableSpec("t", 100000, 64))
            client = cluster.connect()
            tickets = []
            ids = np.arange(20000)
            for _ in range(8):
                tickets.append(client.lookup_async([embla.Lookup("t", ids)]))
                tickets.append(client.update_async(
                    [embla.Gradient("t", ids, np.ones((20000, 64), np.float32))]))
            {last_words}
            """
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", ""), (last_words, ran)


def test_an_exit_while_a_node_stands_still_is_clean():
    ran = run_python(
        SLEEPING_NODE
        + """
    tickets = [client.lookup_async([embla.Lookup("t", [1])], timeout=3.0) for _ in range(3)]
    """
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", ""), ran


def test_an_exit_with_an_uncaught_error_shows_it_alone():
    ran = run_python("import embla; embla.connect('127.0.0.1:1', waits_for_coordinator=False)")
    assert ran.returncode == 1
    assert "embla.errors.UnavailableError" in ran.stderr
    assert "nanobind" not in ran.stderr


# ---------------------------------------------------------------------- forks


def child_of_fork(work):
    """Run `work` in a forked child and return what it returns, or fail after 10 s."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        try:
            os.write(writer, str(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}: {answer}"
    return answer


def test_a_forked_child_is_told_to_connect_again(cluster, client, make_table):
    table = make_table(init=embla.Constant(3.0))
    admin = cluster.admin
    ticket = client.lookup_async([Lookup(table, [1])])

    def in_child():
        refused = []
        for call in (
            lambda: client.lookup([Lookup(table, [1], out=np.zeros((1, 8), np.float32))]),
            lambda: client.read_rows(table, [1], np.zeros((1, 8), np.float32)),
            lambda: client.metrics_text(),
            lambda: client.tables(),
            lambda: ticket.wait(),
            lambda: admin.nodes(),
        ):
            try:
                call()
                refused.append("no")
            except embla.ForkedClientError:
                refused.append("yes")
        client.close()
        return refused

    assert child_of_fork(in_child) == str(["yes"] * 6)
    assert (ticket.wait()[0] == 3).all()
    client.lookup([Lookup(table, [1])])


def test_a_forked_child_may_drop_what_it_inherits(cluster, make_table):
    table = make_table()
    client = cluster.connect()
    tickets = [client.lookup_async([Lookup(table, np.arange(1000))]) for _ in range(5)]
    held = [client, tickets]

    def in_child():
        held.clear()
        return "dropped"

    del client, tickets
    assert child_of_fork(in_child) == "dropped"
    held[0].close()


def test_data_loaders_may_fork(cluster, client, make_table):
    table = make_table(init=embla.Constant(3.0))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, range(-5, 0)) == [5, 4, 3, 2, 1]
        assert (client.read_rows(table, [1]) == 3).all()


# ---------------------------------------------------------------------- the end of clients


def test_a_closed_client_says_so(cluster, make_table):
    table = make_table()
    client = cluster.connect()
    assert not client.closed
    client.close()
    client.close()
    assert client.closed
    for call in (
        lambda: client.lookup([Lookup(table, [1], out=np.zeros((1, 8), np.float32))]),
        lambda: client.tables(),
        lambda: client.read_rows(table, [1], np.zeros((1, 8), np.float32)),
        lambda: client.metrics_text(),
        lambda: client.session,
        lambda: client.refresh_plan(),
    ):
        with pytest.raises(embla.ClientClosedError):
            call()
    assert "closed" in repr(client)


def test_close_gives_calls_in_flight_their_time(cluster, make_table):
    table = make_table(rows=100_000, dim=64, init=embla.Constant(1.0))
    client = cluster.connect()
    tickets = [client.lookup_async([Lookup(table, np.arange(100_000))]) for _ in range(4)]
    client.close()
    for ticket in tickets:
        assert (ticket.wait()[0] == 1).all()


def test_a_client_cannot_be_copied_to_another_process(client):
    import copy
    import pickle

    with pytest.raises(TypeError, match="connect again"):
        pickle.dumps(client)
    with pytest.raises(TypeError, match="connect again"):
        copy.deepcopy(client)


def threads_and_descriptors():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_connects_and_closes_leave_no_thread_and_no_descriptor(
    cluster, make_table, count, await_for
):
    table = make_table()
    for _ in range(3):
        with cluster.connect() as client:
            client.lookup([Lookup(table, [1])])
    threads, descriptors = threads_and_descriptors()
    for number in range(count):
        client = cluster.connect()
        if number % 10 == 0:
            client.lookup([Lookup(table, [1])])
        client.close()

    # gRPC has as many threads of its own as it was busy; a leak has one per client.
    def few_are_left():
        now_threads, now_descriptors = threads_and_descriptors()
        return now_threads < threads + 16 and now_descriptors < descriptors + 16

    await_for(few_are_left, 10, f"about {threads} threads and {descriptors} descriptors again")


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_memory_stays_flat_over_lookups_and_updates(client, make_table, count):
    table = make_table()
    features = embla.FeatureSet([(table, "sum", 8), (table, "sum", 8)])
    ids = np.arange(64)
    lengths = np.full(16, 4, np.int32)
    out = np.zeros((8, 16), np.float32)
    gradients = np.full((8, 16), 1e-3, np.float32)

    def step(number):
        client.lookup_packed(features, ids, lengths, None, out).wait()
        client.lookup([Lookup(table, ids)])
        if number % 5 == 0:
            client.update_packed(features, ids, lengths, None, gradients).wait()
            client.lookup_async([Lookup(table, ids)])  # Dropped without a wait.

    for number in range(2_000):
        step(number)
    before = resident_bytes()
    # Two lookups a turn: 100,000 of them go with 10,000 updates.
    for number in range(count // 2):
        step(number)
    assert resident_bytes() - before < 5 << 20
