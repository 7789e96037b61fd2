#!/usr/bin/env python3
"""How long moves refuse a unit's updates, beside how long the same journals take to sync.

    bench/pause_bench.py [--bin build/release/bin,OTHER/bin] [--directory DIR] [--rounds 2]
                         [--in-flight 2] [--durability written]

A coordinator, two nodes with journals in DIR (default: a temporary directory) and one trainer
(embla-bench: updates of 1,024 ids) of a table of 200,000 rows, dim 64, in 4,096
units, in each round. The nodes are drained in turns, so that units move to and fro. Prints, from
the nodes' histograms of that time: embla_unit_frozen_seconds (the source counts from its freeze
until RELEASE is synced) and embla_journal_sync_seconds, each p50 and p99 (linear within a bucket),
and their differences; the aim is p50 + 2 ms and p99 + 10 ms. Several directories of programs are
measured in turns, a round each.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from port_files import await_file

FROZEN = "embla_unit_frozen_seconds"
SYNC = "embla_journal_sync_seconds"
LOAD_SECONDS = 3  # The trainer trains before the first drain.


def buckets_of(text, name):
    """Cumulative counts of a histogram, by upper bound in seconds."""
    found = re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\S+)', text, re.MULTILINE)
    return {float(bound): float(count) for bound, count in found}


def quantile(buckets, share):
    """In milliseconds. Requires: something was counted."""
    total = max(buckets.values())
    low = below = 0
    for bound, count in sorted(buckets.items()):
        if count >= share * total:
            break
        low, below = bound, count
    high = low if bound == float("inf") else bound
    return 1000 * (low + (high - low) * (share * total - below) / (count - below))


class Cluster:
    def __init__(self, bin_dir, work, options):
        self.bin, self.work = bin_dir, work
        self.processes = []
        work.mkdir()
        ports = self.start("c", "embla-coordinator", "--listen", "127.0.0.1:0", "--admin-listen",
                           "127.0.0.1:0", "--state-dir", work / "state")
        self.listen, self.admin = ports["listen"], ports["admin"]
        self.metrics = [self.start(name, "embla-shard", "--name", name, "--coordinator",
                                   self.listen, "--listen", "127.0.0.1:0", "--devices", "cpu:1",
                                   "--metrics-listen", "127.0.0.1:0", "--data-dir",
                                   work / f"data-{name}", "--durability",
                                   options.durability)["metrics"]
                        for name in ("n1", "n2")]
        self.train(options.in_flight)
        time.sleep(LOAD_SECONDS)

    def start(self, name, program, *arguments):
        file = self.work / f"{name}.port"
        with open(self.work / f"{name}.log", "a") as log:
            self.processes.append(subprocess.Popen(
                [self.bin / program, *arguments, "--port-file", file], stdout=log, stderr=log))
        return await_file(file, self.processes[-1])

    def train(self, in_flight):
        with open(self.work / "trainer.log", "a") as log:
            self.processes.append(subprocess.Popen(
                [self.bin / "embla-bench", "--coordinator", self.listen, "--admin", self.admin,
                 "--rows", "200000", "--dim", "64", "--ids", "1024", "--update-share", "1",
                 "--in-flight", str(in_flight), "--rounds", "1", "--requests", "100000000",
                 "--no-ceilings"], stdout=log, stderr=log))

    def embla(self, *arguments):
        done = subprocess.run([self.bin / "embla", "--admin", self.admin, *arguments],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"embla {' '.join(arguments)}: {done.stderr}{done.stdout}")

    def read(self, counts, sign):
        """Adds the nodes' histograms, or takes them away."""
        for address in self.metrics:
            text = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
            for name in (FROZEN, SYNC):
                for bound, count in buckets_of(text, name).items():
                    counts[name][bound] = counts[name].get(bound, 0) + sign * count

    def drain(self, node, counts):
        self.read(counts, -1)
        self.embla("node", "drain", node, "--wait")
        self.read(counts, 1)
        self.embla("node", "undrain", node)

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


def measure(bin_dir, work, options, counts):
    cluster = Cluster(bin_dir, work, options)
    try:
        for node in ("n1", "n2"):
            cluster.drain(node, counts)
    finally:
        cluster.stop()


def report(bin_dir, counts):
    pauses, syncs = (max(counts[name].values(), default=0) for name in (FROZEN, SYNC))
    if pauses == 0 or syncs == 0:
        sys.exit(f"{bin_dir}: no unit has moved, or no journal was synced")
    print(f"{bin_dir}: {pauses:.0f} pauses, {syncs:.0f} syncs")
    for share, aim in ((0.5, 2), (0.99, 10)):
        pause, sync = (quantile(counts[name], share) for name in (FROZEN, SYNC))
        print(f"  p{100 * share:.0f}: pause {pause:.2f} ms, sync {sync:.2f} ms, "
              f"difference {pause - sync:.2f} ms (aim: {aim})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--directory", help="where the journals are; default: a temporary one")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--durability", default="written")
    parser.add_argument("--in-flight", type=int, default=2, help="updates of the trainer")
    options = parser.parse_args()
    all_bins = [Path(bin_dir).resolve() for bin_dir in options.bin.split(",")]
    counts = [{FROZEN: {}, SYNC: {}} for _ in all_bins]
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        for i in range(options.rounds):
            for j, bin_dir in enumerate(all_bins):
                work = Path(directory) / f"{i}-{j}"
                measure(bin_dir, work, options, counts[j])
    for bin_dir, counted in zip(all_bins, counts):
        report(bin_dir, counted)


if __name__ == "__main__":
    main()
