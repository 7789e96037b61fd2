"""What does a packed call from Python cost over the same call of the C++ client?

Processor time of the whole process, the client's threads included, least of nine rounds, which
alternate between both sides; and the ratio of wall times, median of the rounds. The bars: 60 us of
processor time over the C++ client for 26 features; with --large, 26 tables x 2048 ids x dim 64, a
lookup and an update at most 1.10 x its wall time.

    python client/python/bench/overhead.py build/client/bench/client_calls [--large]

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

    def lookup(self):
        self.client.lookup_packed(self.features, self.ids, self.lengths, None, self.rows).wait()

    def update(self):
        self.client.update_packed(self.features, self.ids, self.lengths, None, self.rows).wait()

    def round(self):
        lookup = self._measure(self.lookup)
        self.rows[:] = 1e-6
        update = self._measure(self.update)
        return [lookup[0], update[0], lookup[1], update[1]]

    def _measure(self, call):
        busy, wall = time.process_time_ns(), time.perf_counter_ns()
        for _ in range(self.calls):
            call()
        return (
            (time.process_time_ns() - busy) / self.calls,
            (time.perf_counter_ns() - wall) / self.calls,
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("client_calls")
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    dim, bags, ids_per_bag, calls = (64, 2048, 1, 10) if arguments.large else (16, 32, 2, 300)
    with embla.LocalCluster(nodes=2, devices=1) as cluster, cluster.connect() as client:
        for feature in range(FEATURES):
            cluster.admin.create_table(embla.TableSpec(f"t{feature}", 10_000, dim), "row_wise")
        python = PythonSide(client, dim, bags, ids_per_bag, calls)
        command = [arguments.client_calls, cluster.coordinator, "t"]
        numbers = [FEATURES, dim, bags, ids_per_bag, calls]
        peer = subprocess.Popen(
            [*command, *map(str, numbers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        rounds = []
        for _ in range(ROUNDS + 1):
            peer.stdin.write("round\n")
            peer.stdin.flush()
            cpp = [float(word) for word in peer.stdout.readline().split()]
            rounds.append((cpp, python.round()))
        peer.stdin.close()
        peer.wait()
    return report(rounds[1:], arguments.large)  # The first one warms up.


def report(rounds, large):
    missed = False
    for column, name in enumerate(("lookup", "update")):
        cpp = min(cpp[column] for cpp, _ in rounds) / 1000
        python = min(python[column] for _, python in rounds) / 1000
        print(f"{name}: processor time C++ {cpp:.1f} us, Python {python:.1f} us, "
              f"{python - cpp:+.1f} us, ratio {python / cpp:.3f}")  # fmt: skip
        missed |= not large and python - cpp > 60
    ratios = [sum(python[2:]) / sum(cpp[2:]) for cpp, python in rounds]
    walls = [sum(cpp[2:]) / 1000 for cpp, _ in rounds]
    print(f"lookup and update: wall time C++ {statistics.median(walls):.0f} us, "
          f"Python / C++ {statistics.median(ratios):.3f} (median of {len(ratios)})")  # fmt: skip
    missed |= large and statistics.median(ratios) > 1.10
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
