"""Calls that run while Python does something else."""

import asyncio
import gc
import signal
import threading
import time
import weakref

import numpy as np
import pytest
from halting import halt

import embla
from embla import FeatureSet, Gradient, Lookup


@pytest.fixture
def halted():
    """A cluster of its own whose only node stands still, and a table on it."""
    with embla.LocalCluster(nodes=1, devices=1) as cluster:
        cluster.admin.create_table(
            embla.TableSpec("t", 1000, 4, optimizer=embla.SGD(lr=1.0), init=embla.Constant(1.0))
        )
        with cluster.connect(timeout=20.0) as client:
            client.lookup([Lookup("t", [1])])
            halt(cluster.shards["node1"])
            yield client, lambda: cluster.shards["node1"].send_signal(signal.SIGCONT)
            cluster.shards["node1"].send_signal(signal.SIGCONT)


def test_a_ticket_gives_the_rows_each_time(client, make_table):
    table = make_table(init=embla.Constant(2.0))
    ticket = client.lookup_async([Lookup(table, [1, 2])])
    (rows,) = ticket.wait()
    assert (rows == 2).all()
    assert ticket.wait()[0] is rows
    assert ticket.done()
    assert not ticket.cancel()


def test_wait_gives_up_after_its_timeout_and_the_call_goes_on(halted):
    client, go_on = halted
    ticket = client.lookup_async([Lookup("t", [1])])
    start = time.monotonic()
    with pytest.raises(embla.DeadlineExceededError, match="goes on"):
        ticket.wait(0.2)
    assert 0.2 <= time.monotonic() - start < 2
    assert not ticket.done()
    go_on()
    assert (ticket.wait()[0] == 1).all()


def test_the_calls_own_timeout_ends_it(halted):
    client, _ = halted
    start = time.monotonic()
    with pytest.raises(embla.DeadlineExceededError, match="node1") as caught:
        client.lookup([Lookup("t", [1])], timeout=0.3)
    assert time.monotonic() - start < 3
    assert (caught.value.node, caught.value.retryable) == ("node1", True)
    assert not caught.value.outcome_unknown
    with pytest.raises(embla.DeadlineExceededError) as caught:
        client.update([Gradient("t", [1], np.ones((1, 4), np.float32))], timeout=0.3)
    assert caught.value.outcome_unknown


def test_a_lookup_can_be_cancelled_and_an_update_cannot(halted):
    client, go_on = halted
    lookup = client.lookup_async([Lookup("t", [1])])
    update = client.update_async([Gradient("t", [2], np.ones((1, 4), np.float32))])
    assert lookup.cancel()
    assert lookup.cancelled()
    assert lookup.done()
    with pytest.raises(embla.CancelledError):
        lookup.wait()
    assert not update.cancel()
    start = time.monotonic()
    del lookup
    assert time.monotonic() - start < 1
    go_on()
    update.wait()
    assert (client.read_rows("t", [2]) == 0).all()


def test_a_dropped_ticket_waits_and_others_run_meanwhile(halted):
    client, go_on = halted
    out = np.zeros((1, 4), np.float32)
    ticket = client.lookup_async([Lookup("t", [1], out=out)])
    timer = threading.Timer(0.3, go_on)
    timer.start()
    del ticket  # The timer's thread needs the interpreter for this to end.
    assert (out == 1).all()
    timer.join()


def test_close_ends_what_takes_too_long(halted):
    client, _ = halted
    lookup = client.lookup_async([Lookup("t", [1])])
    update = client.update_async([Gradient("t", [1], np.ones((1, 4), np.float32))])
    start = time.monotonic()
    with pytest.raises(embla.DeadlineExceededError):
        client.close(timeout=0.3)
    assert time.monotonic() - start < 5
    assert client.closed
    with pytest.raises(embla.EmblaError) as caught:
        lookup.wait()
    assert caught.value.code == "CANCELLED"
    with pytest.raises(embla.EmblaError) as caught:
        update.wait()
    assert caught.value.outcome_unknown


def test_flush_waits_for_updates_in_flight(halted):
    client, go_on = halted
    client.flush()
    ones = np.ones((1, 4), np.float32)
    tickets = [client.update_async([Gradient("t", [id], ones)]) for id in (1, 2)]
    with pytest.raises(embla.DeadlineExceededError):
        client.flush(timeout=0.2)
    threading.Timer(0.2, go_on).start()
    client.flush()
    assert all(ticket.done() for ticket in tickets)
    assert (client.read_rows("t", [1, 2]) == 0).all()


def test_flush_tells_what_failed(halted):
    client, _ = halted
    ticket = client.update_async([Gradient("t", [1], np.ones((1, 4), np.float32))], timeout=0.3)
    with pytest.raises(embla.DeadlineExceededError) as caught:
        client.flush()
    assert caught.value.outcome_unknown
    assert ticket.done()
    client.flush()


def test_tickets_keep_their_arrays(halted):
    client, go_on = halted

    class Array(np.ndarray):
        """Weakly referable."""

    ids = np.array([1, 2]).view(Array)
    alive = weakref.ref(ids)
    features = FeatureSet([("t", "none", 4)])
    out = np.zeros((2, 4), np.float32)
    ticket = client.lookup_packed(features, ids, np.ones(2, np.int32), None, out)
    del ids, features
    gc.collect()
    assert alive() is not None
    go_on()
    ticket.wait()
    gc.collect()
    assert alive() is None
    assert (out == 1).all()


def test_cancelled_calls_keep_their_arrays_until_they_are_over(halted, await_for):
    client, go_on = halted

    class Array(np.ndarray):
        """Weakly referable."""

    out = np.zeros((1, 4), np.float32).view(Array)
    alive = weakref.ref(out)
    ticket = client.lookup_async([Lookup("t", [1], out=out)])
    ticket.cancel()
    del out, ticket
    gc.collect()
    assert alive() is not None
    go_on()

    def freed():
        client.lookup([Lookup("t", [1])])  # Later calls free what earlier ones left.
        return alive() is None

    await_for(freed, 10, "the array is freed")


def test_tickets_are_awaited_while_the_loop_runs(halted):
    client, go_on = halted

    async def main():
        turns = 0

        async def tick():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        asyncio.get_running_loop().call_later(0.3, go_on)
        first, second = await asyncio.gather(
            *(client.lookup_async([Lookup("t", [id])]) for id in (1, 2))
        )
        await client.update_async([Gradient("t", [1], np.ones((1, 4), np.float32))])
        ticking.cancel()
        assert turns >= 10
        assert (first[0] == 1).all()
        assert (second[0] == 1).all()
        with pytest.raises(embla.IdOutOfRangeError):
            await client.lookup_async([Lookup("t", [1000])])
        done = client.lookup_async([Lookup("t", [1])])
        done.wait()
        assert (await done)[0][0, 0] == 0

    asyncio.run(main())


def test_a_cancelled_task_gives_its_lookup_up(halted):
    client, _ = halted

    async def main():
        ticket = client.lookup_async([Lookup("t", [1])])
        start = time.monotonic()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_rows(ticket), 0.2)
        assert ticket.cancelled()
        assert time.monotonic() - start < 2

    async def _rows(ticket):
        return await ticket

    asyncio.run(main())


def test_one_client_serves_many_threads(client, make_table):
    table = make_table(init=embla.Constant(0.0), dim=4)
    failures = []

    def work(number):
        try:
            for _ in range(50):
                ones = np.ones((1, 4), np.float32)
                client.update([Gradient(table, [number], ones), Gradient(table, [99], ones)])
                client.lookup([Lookup(table, [number, 99])])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    rows = client.read_rows(table, [*range(8), 99])
    np.testing.assert_array_equal(rows[:8], np.full((8, 4), -50))
    np.testing.assert_array_equal(rows[8], np.full(4, -400))


def test_other_threads_run_during_a_call(halted):
    client, go_on = halted
    turns = 0
    over = threading.Event()

    def count():
        nonlocal turns
        while not over.is_set():
            turns += 1

    counter = threading.Thread(target=count)
    counter.start()
    threading.Timer(0.3, go_on).start()
    client.lookup([Lookup("t", [1])])
    over.set()
    counter.join()
    assert turns > 1000
