"""What does a call from Python cost over the same call of the C++ client?

Processor time of the thread that calls, least of nine rounds, which alternate between all sides;
and the ratio of wall times, median of the rounds. The bars: 60 us of processor time over the C++
client for 26 features; with --large, 26 tables x 2048 ids x dim 64, a lookup and an update at most
1.10 x its wall time. Processor time of the whole process, the client's threads included, has no
bar.

With --module, where torch is installed, the same of a call of EmbeddingBagSet: a forward pass with
and without gradient; and a forward and a backward pass, less what torch's engine costs around two
packed calls, which is what the module adds to a model that has a backward pass anyway.

    client/python/tests/run.sh bench        builds what is needed; runs this and torch_step.py
    python overhead.py build/python/module/bench/client_calls [--large | --module]

EMBLA_BIN_DIR says where the server programs are. Exit code 1: a bar was missed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import numpy as np

import embla

FEATURES = 26
ROUNDS = 9
BAR_US = 60
CLOCKS = (time.thread_time_ns, time.process_time_ns, time.perf_counter_ns)
THREAD, PROCESS, WALL = range(3)


class PythonSide:
    """Lookups and updates of the shape of client_calls.cc."""

    def __init__(self, client, dim, bags, ids_per_bag, calls):
        self.client = client
        self.calls = calls
        self.features = embla.FeatureSet([(f"t{f}", "sum", dim) for f in range(FEATURES)])
        count = FEATURES * bags * ids_per_bag
        self.ids = np.arange(count) * 7919 % 10_000
        self.lengths = np.full(FEATURES * bags, ids_per_bag, np.int32)
        self.rows = np.empty((bags, FEATURES * dim), np.float32)
        self.gradients = np.full_like(self.rows, 1e-6)

    def lookup(self):
        self.client.lookup_packed(self.features, self.ids, self.lengths, None, self.rows).wait()

    def update(self):
        self.client.update_packed(
            self.features, self.ids, self.lengths, None, self.gradients
        ).wait()

    def round(self):
        return {"lookup": self._measure(self.lookup), "update": self._measure(self.update)}

    def _measure(self, call):
        """Returns nanoseconds per call by each clock."""
        before = [clock() for clock in CLOCKS]
        for _ in range(self.calls):
            call()
        return [(clock() - b) / self.calls for clock, b in zip(CLOCKS, before, strict=True)]


class ModuleSide(PythonSide):
    """The same calls as passes of a module, and around autograd functions that do nothing else."""

    def __init__(self, client, dim, bags, ids_per_bag, calls):
        import torch

        import embla.torch

        super().__init__(client, dim, bags, ids_per_bag, calls)
        torch.set_num_threads(1)  # The servers are on this machine, too.
        self.no_grad = torch.no_grad
        features = [embla.torch.Feature(f"t{f}", "sum", dim) for f in range(FEATURES)]
        self.module = embla.torch.EmbeddingBagSet(client, features)
        self.values, self.bag_lengths = map(torch.from_numpy, (self.ids, self.lengths))
        self.out_gradients = torch.from_numpy(self.gradients)
        self.hook = torch.zeros(1, requires_grad=True)
        out = torch.zeros(self.rows.shape)

        class Packed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, hook):
                self.lookup()
                return out.view_as(out)

            @staticmethod
            def backward(ctx, gradient):
                self.update()

        self.packed = Packed.apply

    def round(self):
        return {
            "forward without gradient": self._measure(self._forward_without_gradient),
            "forward": self._measure(lambda: self.module(self.values, self.bag_lengths)),
            "forward and backward": self._measure(
                lambda: self.module(self.values, self.bag_lengths).backward(self.out_gradients)
            ),
            "torch's engine": self._measure(
                lambda: self.packed(self.hook).backward(self.out_gradients)
            ),
        }

    def _forward_without_gradient(self):
        with self.no_grad():
            self.module(self.values, self.bag_lengths)


class CppSide:
    """The program client_calls, which runs a round per line that it reads."""

    def __init__(self, program, coordinator, *numbers):
        self.peer = subprocess.Popen(
            [program, coordinator, "t", *map(str, [FEATURES, *numbers])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def round(self):
        self.peer.stdin.write("round\n")
        self.peer.stdin.flush()
        numbers = [float(word) for word in self.peer.stdout.readline().split()]
        return {"lookup": numbers[0::2], "update": numbers[1::2]}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.peer.stdin.close()
        self.peer.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("client_calls")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--module", action="store_true")
    arguments = parser.parse_args()
    shape = (64, 2048, 1, 10) if arguments.large else (16, 32, 2, 300)
    with embla.LocalCluster(nodes=2, devices=1) as cluster, cluster.connect() as client:
        for feature in range(FEATURES):
            cluster.admin.create_table(embla.TableSpec(f"t{feature}", 10_000, shape[0]), "row_wise")
        with CppSide(arguments.client_calls, cluster.coordinator, *shape) as cpp:
            sides = {"C++": cpp, "packed": PythonSide(client, *shape)}
            if arguments.module:
                sides["module"] = ModuleSide(client, *shape)
            rounds = [
                {name: side.round() for name, side in sides.items()} for _ in range(ROUNDS + 1)
            ]
    rounds = rounds[1:]  # The first one warms up.
    return report_large(rounds) if arguments.large else report(rounds)


def least(rounds, side, call, clock=THREAD):
    """Returns microseconds."""
    return min(r[side][call][clock] for r in rounds) / 1000


def report(rounds):
    """Returns whether a bar was missed."""
    lookup, update = (least(rounds, "C++", call) for call in ("lookup", "update"))
    overheads = {}
    for call, cpp in (("lookup", lookup), ("update", update)):
        overheads[f"packed {call}"] = least(rounds, "packed", call) - cpp
    if "module" in rounds[0]:
        for call in ("forward without gradient", "forward"):
            overheads[f"module, {call}"] = least(rounds, "module", call) - lookup
        both = least(rounds, "module", "forward and backward")
        engine = least(rounds, "module", "torch's engine")
        print(f"module, forward and backward: {both:.1f} us; two packed calls in torch's engine: "
              f"{engine:.1f} us")  # fmt: skip
        overheads["module, backward"] = (
            both - engine + overheads["packed lookup"] + overheads["packed update"]
            - overheads["module, forward"]
        )  # fmt: skip
    print(f"thread's processor time: C++ lookup {lookup:.1f} us, update {update:.1f} us")
    for name, overhead in overheads.items():
        print(f"{name}: {overhead:+.1f} us (bar {BAR_US})")
    for call in ("lookup", "update"):
        cpp, python = (least(rounds, side, call, PROCESS) for side in ("C++", "packed"))
        print(f"process's processor time of a {call}: C++ {cpp:.1f} us, packed {python:.1f} us")
    return int(max(overheads.values()) > BAR_US)


def report_large(rounds):
    """Returns whether the bar was missed."""
    walls = [
        {side: r[side]["lookup"][WALL] + r[side]["update"][WALL] for side in r} for r in rounds
    ]
    ratios = [wall["packed"] / wall["C++"] for wall in walls]
    print(f"lookup and update: wall time C++ {statistics.median(w['C++'] for w in walls) / 1e6:.2f}"
          f" ms, packed / C++ {statistics.median(ratios):.3f} (median of {len(ratios)}, bar 1.10),"
          f" rounds {min(ratios):.3f} to {max(ratios):.3f}")  # fmt: skip
    return int(statistics.median(ratios) > 1.10)


if __name__ == "__main__":
    sys.exit(main())
