"""Trainers that are killed while they step together, and started again under their names."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rank_that_trains import DIM, ROWS

import embla

SCRIPT = Path(__file__).parent / "rank_that_trains.py"
RANKS = 2
CALM = 20  # Steps between two troubles.


class Rank:
    """A rank over all of its processes."""

    def __init__(self, cluster, table, rank):
        self._arguments = [cluster.coordinator, table, str(rank), str(RANKS)]
        self._goal = 0
        self.done = 0  # Steps that its processes have reported.
        self._start()

    def train_to(self, goal):
        """Let it make all steps below ``goal``; does not wait for them."""
        self._goal = goal
        self._process.stdin.write(f"{goal}\n")
        self._process.stdin.flush()

    def reported(self):
        assert self._process.poll() is None, "its process has ended"
        return self.done

    def kill(self):
        """End its process at once, as a crash would."""
        self._process.kill()
        self._await_end()

    def restart(self):
        """Start it again under its name, where it was."""
        self._start()
        self.train_to(self._goal)

    def stop(self):
        """Let its process end once the goal is reached."""
        self._process.stdin.close()
        assert self._await_end() == 0

    def _start(self):
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *self._arguments, str(self.done)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def _read(self, lines):
        for line in lines:
            self.done = int(line) + 1

    def _await_end(self):
        code = self._process.wait(timeout=120)
        self._reader.join()
        self._process.stdin.close()
        self._process.stdout.close()
        return code


class Training:
    """The ranks of a table, and how far they are to go."""

    def __init__(self, cluster, await_for, table):
        self.await_for = await_for
        self.ranks = [Rank(cluster, table, rank) for rank in range(RANKS)]
        self.goal = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.kill()

    def go_on(self, steps=CALM):
        """Give the ranks so many steps more; does not wait for them."""
        self.goal += steps
        for rank in self.ranks:
            rank.train_to(self.goal)

    def reach(self, step):
        self.await_for(
            lambda: min(rank.reported() for rank in self.ranks) >= step,
            120,
            f"{step} steps are made",
        )

    def kill_amid_steps(self, rank):
        """Kill a rank that has steps to make, and wait until both have made them."""
        self.go_on(2 * CALM)
        self.reach(self.goal - CALM)
        self.ranks[rank].kill()
        self.ranks[rank].restart()
        self.reach(self.goal)

    def stop(self):
        for rank in self.ranks:
            rank.stop()


def create(cluster, name, zch):
    spec = embla.TableSpec(
        name, 4 * ROWS if zch else ROWS, DIM, optimizer=embla.Adagrad(lr=0.1), seed=7, sync=True,
        row_granules=0 if zch else 24, zch=embla.Zch(buckets=24) if zch else None,
    )  # fmt: skip
    cluster.admin.create_table(spec, "row_wise")


def bits(client, table):
    """Returns weights and optimizer state of each id."""
    return {
        id: (rows.weights[i].tobytes(), rows.state[i].tobytes())
        for rows in client.table(table).scan(with_state=True)
        for i, id in enumerate(rows.ids.tolist())
    }


def reshard(cluster, training, table, nodes):
    """Move a table while its ranks make steps."""
    job = cluster.admin.reshard(table, nodes)
    while not job.is_over:
        training.go_on()
        training.reach(training.goal)
        job = cluster.admin.job(job.id)
    assert cluster.admin.wait(job).units_moved > 0


def train_through_deaths(cluster, await_for):
    """Returns how many steps were made."""
    with Training(cluster, await_for, "troubled") as training:
        training.kill_amid_steps(rank=0)
        for name in ("node3", "node4"):
            cluster.start_shard(name)
        reshard(cluster, training, "troubled", 4)
        training.kill_amid_steps(rank=1)
        reshard(cluster, training, "troubled", 3)
        training.kill_amid_steps(rank=0)
        training.stop()
        return training.goal


@pytest.mark.parametrize("zch", [False, True], ids=["rows", "any ids"])
def test_ranks_that_are_killed_leave_no_trace_in_the_bits(await_for, zch):
    with embla.LocalCluster(nodes=2, devices=1) as cluster, cluster.connect() as client:
        create(cluster, "troubled", zch)
        steps = train_through_deaths(cluster, await_for)
        create(cluster, "calm", zch)
        with Training(cluster, await_for, "calm") as training:
            training.go_on(steps)
            training.stop()
        troubled = bits(client, "troubled")
        assert len(troubled) == ROWS
        assert troubled == bits(client, "calm")
