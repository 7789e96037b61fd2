"""What does a training step of embla.torch cost, and how much of a lookup does a pipeline hide?

A step: 26 tables x 2048 ids x dim 64, forward and backward through EmbeddingBagSet, beside the same
packed lookup and update from Python and, with the program client_calls, from C++. Rounds alternate;
ratios of wall times are the median of the rounds. The bar: 1.10 x the C++ client.

A pipeline: steps with a dense part that is a timed wait as long as the lookup of a step without
pipeline, in the optimizer for staleness 0 and in the forward pass for staleness 1. Hidden is by how
much a step of the pipeline is shorter than one without, in percent of a lookup: medians of a
round's steps, then of the rounds. The bars: 60 % and 90 %. Beside it, without a bar: by how much
less a forward pass waits for rows.

    python client/python/bench/torch_step.py [build/client/bench/client_calls]

EMBLA_BIN_DIR says where the server programs are. Exit code 1: a bar was missed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shlex
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
from overhead import FEATURES, ROUNDS, PythonSide
from torch import nn

import embla
import embla.torch

DIM, BAGS, ROWS, CALLS = 64, 2048, 10_000, 10
SET = [embla.torch.Feature(f"t{f}", "sum", DIM) for f in range(FEATURES)]
WARM_UP_STEPS = 2


class TorchSide:
    """Forward and backward passes with the ids and gradients of the packed calls."""

    def __init__(self, client, packed):
        self.rows = embla.torch.EmbeddingBagSet(client, SET)
        self.ids = torch.from_numpy(packed.ids)
        self.lengths = torch.from_numpy(packed.lengths)
        self.gradients = torch.full(packed.rows.shape, 1e-6)

    def round(self):
        """Returns nanoseconds of a forward pass and of a backward pass."""
        forward = backward = 0
        for _ in range(CALLS):
            start = time.perf_counter_ns()
            out = self.rows(self.ids, self.lengths)
            middle = time.perf_counter_ns()
            out.backward(self.gradients)
            forward += middle - start
            backward += time.perf_counter_ns() - middle
        return [forward / CALLS, backward / CALLS]


class PackedSide(PythonSide):
    """The packed calls in the order of a training loop."""

    def round(self):
        """Returns nanoseconds of a lookup and of an update."""
        walls = [0, 0]
        for _ in range(CALLS):
            for part, call in enumerate((self.lookup, self.update)):
                start = time.perf_counter_ns()
                call()
                walls[part] += time.perf_counter_ns() - start
        return [wall / CALLS for wall in walls]


class CppSide:
    """The program client_calls, which runs a round per line that it reads."""

    def __init__(self, program, coordinator, ends):
        numbers = map(str, [FEATURES, DIM, BAGS, 1, CALLS])
        self.peer = ends.enter_context(
            subprocess.Popen(
                [program, coordinator, "t", *numbers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )

    def round(self):
        self.peer.stdin.write("round\n")
        self.peer.stdin.flush()
        return [float(word) for word in self.peer.stdout.readline().split()][4:]


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
    """Steps without pipeline (staleness None) or with one; they go on where they ended."""

    def __init__(self, client, staleness, batches):
        self.model, self.staleness = WaitingModel(client), staleness
        self.batches = itertools.cycle(batches)
        if staleness is None:
            return
        self.pipeline = embla.torch.TrainPipeline(
            self.model,
            self.model,
            prefetch=lambda batch: self.model.rows.prefetch(*batch),
            staleness=staleness,
        )

    def step(self):
        if self.staleness is not None:
            self.pipeline.progress(self.batches)
            return
        self.model.zero_grad()
        self.model(next(self.batches))[0].backward()
        self.model.step()

    def round(self, wait_seconds):
        """Returns seconds of a step with so long a dense part, and of its wait for rows."""
        in_forward = self.staleness == 1
        self.model.forward_seconds = wait_seconds if in_forward else 0.0
        self.model.optimizer_seconds = 0.0 if in_forward else wait_seconds
        for _ in range(WARM_UP_STEPS):
            self.step()
        self.model.rows_seconds.clear()
        steps = []
        for _ in range(CALLS):
            start = time.perf_counter()
            self.step()
            steps.append(time.perf_counter() - start)
        return np.array([statistics.median(steps), statistics.median(self.model.rows_seconds)])


def measure_step(cluster, client, program):
    """Returns whether the bar was missed."""
    packed = PackedSide(client, DIM, BAGS, 1, CALLS)
    through_torch = TorchSide(client, packed)
    with contextlib.ExitStack() as ends:
        sides = {"torch": through_torch.round, "packed": packed.round}
        if program:
            sides["C++"] = CppSide(program, cluster.coordinator, ends).round
        rounds = [{name: side() for name, side in sides.items()} for _ in range(ROUNDS + 1)][1:]
    for name in sides:
        lookup, update = (statistics.median(r[name][part] for r in rounds) / 1e6 for part in (0, 1))
        print(f"{name}: lookup {lookup:.2f} ms, update {update:.2f} ms")
    missed = False
    for name in list(sides)[1:]:
        ratios = [sum(r["torch"]) / sum(r[name]) for r in rounds]
        bar = " (bar 1.10)" if name == "C++" else ""
        print(f"torch / {name}: {statistics.median(ratios):.3f}{bar}, "
              f"rounds {min(ratios):.3f} to {max(ratios):.3f}")  # fmt: skip
        missed |= name == "C++" and statistics.median(ratios) > 1.10
    return missed


def measure_pipeline(client):
    """Returns whether a bar was missed."""
    rng = np.random.default_rng(0)
    lengths = torch.ones(FEATURES * BAGS, dtype=torch.int32)
    batches = [
        (torch.from_numpy(rng.integers(0, ROWS, FEATURES * BAGS)), lengths) for _ in range(8)
    ]
    plain, zero, one = (Loop(client, staleness, batches) for staleness in (None, 0, 1))
    hidden, steps = {0: [], 1: []}, []
    wait = plain.round(0.0)[1]
    for _ in range(ROUNDS):
        step = plain.round(wait)
        for loop in (zero, one):
            hidden[loop.staleness].append((step - loop.round(wait)) / step[1] * 100)
        steps.append(step)
        wait = step[1]
    step, lookup = np.median(steps, axis=0) * 1e3
    print(f"a step of {step:.2f} ms: a lookup, {lookup:.2f} ms, a wait as long, and an update")
    missed = False
    for staleness, bar in ((0, 60), (1, 90)):
        shares = np.array(hidden[staleness])
        share, waits = np.median(shares, axis=0)
        print(f"staleness {staleness}: {share:.0f} % hidden (bar {bar} %), rounds "
              f"{shares[:, 0].min():.0f} to {shares[:, 0].max():.0f} %; "
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
