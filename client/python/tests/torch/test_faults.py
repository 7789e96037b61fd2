"""Nodes and the coordinator die while a model trains: it goes on, and no update is lost."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from halting import halt
from small_model import Model, batch

import embla
import embla.torch

TABLES = {"t8": 8, "t16": 16}


@pytest.fixture
def mortal(tmp_path):
    """A cluster of this test alone, whose rows stay in a folder."""
    with embla.LocalCluster(nodes=2, devices=1, data_dir=tmp_path / "cluster") as cluster:
        yield cluster


class Run:
    """A model over new tables, trained step by step; the rows begin the same each time."""

    def __init__(self, cluster, **options):
        existing = {table["spec"]["name"] for table in cluster.admin.plan()["tables"]}
        for name, dim in TABLES.items():
            if name in existing:
                cluster.admin.drop_table(name)
            # Adagrad: a step that is repeated, or lost, changes the row and its state.
            spec = embla.TableSpec(
                name, 1000, dim, optimizer=embla.Adagrad(lr=0.1), init=embla.Uniform(-1.0, 1.0)
            )
            cluster.admin.create_table(spec, "row_wise")
        self.client = cluster.connect(timeout=60.0, retry_budget_ratio=1.0)
        torch.manual_seed(5)
        self.model = Model(self.client, **options)
        self.dense = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.losses = []

    def step(self):
        loss = self.model(*batch(len(self.losses))).square().mean()
        self.dense.zero_grad()
        loss.backward()
        self.dense.step()
        self.losses.append(loss.item())

    def steps(self, count):
        for _ in range(count):
            self.step()

    def end(self):
        """Returns all losses, rows and optimizer states as bytes."""
        embla.torch.flush(self.model)
        ids = np.arange(1000)
        read = [self.client.read_rows(name, ids) for name in TABLES]
        read += [self.client.read_state(name, ids) for name in TABLES]
        self.client.close()
        return [np.array(self.losses).tobytes(), *(array.tobytes() for array in read)]


def undisturbed(cluster, steps, **options):
    run = Run(cluster, **options)
    run.steps(steps)
    return run.end()


def restart_shard(cluster, name):
    cluster.shards[name].kill()
    cluster.start_shard(name)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_training_goes_on_over_killed_shard_servers(mortal, mode):
    run = Run(mortal, update_mode=mode)
    run.steps(10)
    with ThreadPoolExecutor(1) as beside:
        for name in ("node1", "node2"):
            killed = beside.submit(restart_shard, mortal, name)
            run.step()  # One step may last until the node is back.
            while not killed.done():
                run.step()
            killed.result()
    run.steps(10)
    assert run.end() == undisturbed(mortal, len(run.losses), update_mode=mode)


def test_a_shard_server_dies_between_forward_and_backward(mortal):
    run = Run(mortal)
    run.steps(3)
    loss = run.model(*batch(3)).square().mean()
    restart_shard(mortal, "node1")
    run.dense.zero_grad()
    loss.backward()
    run.dense.step()
    run.losses.append(loss.item())
    run.steps(3)
    assert run.end() == undisturbed(mortal, 7)


def test_training_needs_no_coordinator_and_goes_on_when_it_is_back(mortal):
    run = Run(mortal)
    run.steps(5)
    mortal.coordinator_process.kill()
    run.steps(20)
    mortal.restart_coordinator()
    with ThreadPoolExecutor(1) as beside:
        serves = beside.submit(restart_shard, mortal, "node2")
        while not serves.done():
            run.step()
        serves.result()
    run.steps(5)
    assert run.end() == undisturbed(mortal, len(run.losses))


@pytest.mark.parametrize("call", ["forward", "backward"])
def test_a_deadline_error_names_table_and_node(mortal, call):
    run = Run(mortal, timeout=0.5)
    run.steps(2)
    ids, lengths = batch(2)
    loss = run.model(ids, lengths).square().mean()
    stopped = mortal.shards["node2"]
    halt(stopped)
    try:
        with pytest.raises(embla.DeadlineExceededError) as caught:
            loss.backward() if call == "backward" else run.model(ids, lengths)
    finally:
        stopped.send_signal(signal.SIGCONT)
    assert caught.value.node == "node2"
    assert caught.value.table in TABLES
    assert caught.value.outcome_unknown == (call == "backward")
    embla.torch.flush(run.model)
    run.client.close()
