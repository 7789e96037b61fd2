"""What does a training step of embla.torch cost, and how much of a lookup does a pipeline hide?

A step: 26 tables x 2048 ids x dim 64, forward and backward through EmbeddingBagSet, beside the same
packed lookup and update from Python and, with the program client_calls, from C++. Sides alternate
step by step, in an order that is drawn each time: what a step leaves to the servers to do meets all
alike. Ratios of wall times are the median of rounds of ten steps. The bar: 1.10 x the C++ client.

A pipeline: steps with a dense part that is a timed wait as long as the lookup of a step without
pipeline, in the optimizer for staleness 0 and in the forward pass for staleness 1. Steps without
and with pipelines alternate, too; a step ends when the lookup that it has started is over. Hidden
is by how much a step of the pipeline is shorter than one without, in percent of a lookup: lower
quartiles of all steps, because the upper ones tell what else the machine does. The bars: 60 % and
90 %. Beside it, without a bar: by how much less a forward pass waits for rows.

    client/python/tests/run.sh bench        builds what is needed; runs this and overhead.py
    python torch_step.py [build/python/module/bench/client_calls]

EMBLA_BIN_DIR says where the server programs are. Exit code 1: a bar was missed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shlex
import sys
import time

import numpy as np
import torch
from overhead import FEATURES, ROUNDS, WALL, CppSide, PythonSide
from torch import nn

import embla
import embla.torch

DIM, BAGS, ROWS, STEPS = 64, 2048, 10_000, 10
SET = [embla.torch.Feature(f"t{f}", "sum", DIM) for f in range(FEATURES)]


class TorchSide:
    """Forward and backward passes with the ids and gradients of the packed calls."""

    def __init__(self, client, packed):
        self.rows = embla.torch.EmbeddingBagSet(client, SET)
        self.ids = torch.from_numpy(packed.ids)
        self.lengths = torch.from_numpy(packed.lengths)
        self.gradients = torch.from_numpy(packed.gradients)

    def step(self):
        """Returns nanoseconds of a forward pass and of a backward pass."""
        start = time.perf_counter_ns()
        out = self.rows(self.ids, self.lengths)
        middle = time.perf_counter_ns()
        out.backward(self.gradients)
        return [middle - start, time.perf_counter_ns() - middle]


class PackedSide(PythonSide):
    """The packed calls in the order of a training loop."""

    def step(self):
        """Returns nanoseconds of a lookup and of an update."""
        start = time.perf_counter_ns()
        self.lookup()
        middle = time.perf_counter_ns()
        self.update()
        return [middle - start, time.perf_counter_ns() - middle]


class WaitingModel(nn.Module):
    """Rows, and a wait in place of a dense part; the wait is its own optimizer, too."""

    def __init__(self, client):
        super().__init__()
        self.rows = embla.torch.EmbeddingBagSet(client, SET)
        self.forward_seconds = self.optimizer_seconds = 0.0
        self.rows_seconds = []

    def forward(self, batch):
        start = time.perf_counter()
        rows = self.rows(*batch)
        self.rows_seconds.append(time.perf_counter() - start)
        loss = rows.mean()
        time.sleep(self.forward_seconds)
        return loss, None

    def step(self):
        time.sleep(self.optimizer_seconds)


class Loop:
    """Steps without pipeline (staleness None) or with one."""

    def __init__(self, client, staleness, batches, wait_seconds):
        self.model, self.staleness = WaitingModel(client), staleness
        self.batches = itertools.cycle(batches)
        self.model.forward_seconds = wait_seconds if staleness == 1 else 0.0
        self.model.optimizer_seconds = 0.0 if staleness == 1 else wait_seconds
        self.started = []
        if staleness is not None:
            self.pipeline = embla.torch.TrainPipeline(
                self.model, self.model, prefetch=self._prefetch, staleness=staleness
            )

    def step(self):
        """Returns seconds of a step, and of its wait for rows."""
        start = time.perf_counter()
        if self.staleness is None:
            self.model.zero_grad()
            self.model(next(self.batches))[0].backward()
            self.model.step()
        else:
            self.pipeline.progress(self.batches)
            for lookup in self.started:
                lookup.wait()
            self.started.clear()
        return [time.perf_counter() - start, self.model.rows_seconds.pop()]

    def _prefetch(self, batch):
        self.started.append(self.model.rows.prefetch(*batch))


def alternate(sides):
    """Returns what each side's steps returned, without the first ones, which warm up."""
    rng = np.random.default_rng(0)
    names, steps = list(sides), []
    for _ in range((ROUNDS + 1) * STEPS):
        order = rng.permutation(len(names))
        done = {names[i]: sides[names[i]]() for i in order}
        steps.append([done[name] for name in names])
    return dict(zip(names, np.swapaxes(steps[STEPS:], 0, 1), strict=True))


def measure_step(cluster, client, program):
    """Returns whether the bar was missed."""
    shape = (DIM, BAGS, 1, 1)
    packed = PackedSide(client, *shape)
    with contextlib.ExitStack() as ends:
        sides = {"torch": TorchSide(client, packed).step, "packed": packed.step}
        if program:
            cpp = ends.enter_context(CppSide(program, cluster.coordinator, *shape))
            sides["C++"] = lambda: [times[WALL] for times in cpp.round().values()]
        steps = alternate(sides)
    walls = {name: np.reshape(wall, (-1, STEPS, 2)) / 1e6 for name, wall in steps.items()}
    for name, wall in walls.items():
        lookup, update = np.median(wall, axis=(0, 1))
        print(f"{name}: lookup {lookup:.2f} ms, update {update:.2f} ms")
    missed = False
    for name in list(sides)[1:]:
        ratios = walls["torch"].sum((1, 2)) / walls[name].sum((1, 2))
        bar = " (bar 1.10)" if name == "C++" else ""
        print(f"torch / {name}: {np.median(ratios):.3f}{bar}, "
              f"rounds {ratios.min():.3f} to {ratios.max():.3f}")  # fmt: skip
        missed |= name == "C++" and bool(np.median(ratios) > 1.10)
    return missed


def measure_pipeline(client):
    """Returns whether a bar was missed."""
    rng = np.random.default_rng(0)
    lengths = torch.ones(FEATURES * BAGS, dtype=torch.int32)
    batches = [
        (torch.from_numpy(rng.integers(0, ROWS, FEATURES * BAGS)), lengths) for _ in range(8)
    ]
    warm_up = Loop(client, None, batches, 0.0)
    wait = float(np.median([warm_up.step()[1] for _ in range(3 * STEPS)]))
    steps = alternate(
        {staleness: Loop(client, staleness, batches, wait).step for staleness in (None, 0, 1)}
    )
    plain, *pipelines = (np.quantile(step, 0.25, axis=0) * 1e3 for step in steps.values())
    print(f"a step of {plain[0]:.2f} ms: a lookup, {plain[1]:.2f} ms, a wait of "
          f"{wait * 1e3:.2f} ms, and an update")  # fmt: skip
    missed = False
    for staleness, bar, times in zip((0, 1), (60, 90), pipelines, strict=True):
        share, waits = (plain - times) / plain[1] * 100
        print(f"staleness {staleness}: {share:.0f} % hidden (bar {bar} %); "
              f"waits for rows: {waits:.0f} % less")  # fmt: skip
        missed |= bool(share < bar)
    return missed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("client_calls", nargs="?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # The servers are on this machine, too.
    print(f"{shlex.join(['python', *sys.argv])}: {os.cpu_count()} cores, load "
          f"{os.getloadavg()[0]:.1f}, torch {torch.__version__}")  # fmt: skip
    with embla.LocalCluster(nodes=2, devices=1) as cluster, cluster.connect() as client:
        for feature in range(FEATURES):
            spec = embla.TableSpec(f"t{feature}", ROWS, DIM)
            cluster.admin.create_table(spec, "row_wise")
        missed = measure_step(cluster, client, arguments.client_calls)
        missed |= measure_pipeline(client)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
