#!/usr/bin/env python3
"""The cost of a copy on another node, and of a slow link to it, for updates of a table.

    bench/replication_bench.py [--bin build/release/bin,OTHER/bin] [--trainers 4] [--rounds 5]

`copies` is a cluster of two nodes with a copy of the table on each. `linked` is the same with the
second node behind a link of ours, which passes on each byte at once, or, `delayed`, 5 ms later in
either direction (the trainers' own links are never slow: updates go to the first node). `plain` are
two clusters of one node, with an unreplicated table each and half of the trainers, at the same
time: their nodes have the cores and caches to share that two copies have. In each round all are
asked in turns by embla-bench: updates of 4,096 ids, dim 64, fp32, four in flight per trainer. An
update is acknowledged when both copies have it, so T trainers have at most 4 T updates per 10 ms on
the slow link: with too few trainers that, and nothing of a node, is what is measured.

Prints medians over rounds: rows/s; rows/s `delayed` by `linked`, in the same round (aim: 0.8); and
CPU seconds per million rows of trainers and nodes, by those of plain trainers and twice a plain
node (aim: 1.15, for `copies`: the link reads and writes small pieces, which costs the nodes on both
its sides as much as the messages do). Each turn makes its table, which counts: a turn should have
many times more rows than the table. Several directories of programs are measured in turns.

    bench/replication_bench.py --copy [--bin ...] [--rounds 5]

The cost of a new copy: trainers update a table of 293 MiB that has a copy on both nodes, without
the link. The second node is drained, and gets its copy anew. Prints rows/s while the copy is made
by rows/s with both copies and by those with one (aim: 0.92; on one machine the copy's node takes
part of the cores that the first one had alone), how long it took, by how much the primary's node
grew meanwhile, and for how long its windows held a device. A copy that does not end within
--copy-seconds is given up. Several directories are measured in turns.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from delayed_link import DelayedLink
from port_files import await_file

IDS = 4096
TICKS = os.sysconf("SC_CLK_TCK")


class Cluster:
    """One coordinator and `nodes` nodes; if `linked`, the second one is behind `link`."""

    def __init__(self, bin_dir, work, nodes, options, linked=False):
        self.bin, self.work, self.options = bin_dir, work, options
        self.processes, self.nodes = [], []
        self.link = DelayedLink()
        work.mkdir()
        ports = self.start("c", "embla-coordinator", "--admin-listen", "127.0.0.1:0",
                           "--state-dir", work / "state")
        self.listen, self.admin = ports["listen"], ports["admin"]
        for n in range(nodes):
            advertise = ["--advertise", self.link.address] if linked and n == 1 else []
            # Freed memory is given back, where memory is measured.
            kept = ["--kept-heap", "16MiB"] if options.copy else []
            ports = self.start(f"n{n}", "embla-shard", "--name", f"n{n}", "--coordinator",
                               self.listen, "--devices", "cpu:1", "--metrics-listen",
                               "127.0.0.1:0", *advertise, *kept)
            self.nodes.append(self.processes[-1].pid)
            if n == 0:
                self.metrics = ports["metrics"]
            else:
                host, port = ports["listen"].rsplit(":", 1)
                self.link.upstream = (host, int(port))

    def start(self, name, program, *arguments):
        file = self.work / f"{name}.port"
        with open(self.work / f"{name}.log", "a") as log:
            self.processes.append(subprocess.Popen(
                [self.bin / program, "--listen", "127.0.0.1:0", *arguments, "--port-file", file],
                stdout=log, stderr=log))
        return await_file(file, self.processes[-1])

    def node_seconds(self):
        """CPU seconds of all nodes so far."""
        ticks = 0
        for pid in self.nodes:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS

    def trainer_command(self, trainers, rows, sharding, requests, seed):
        """The command that trains."""
        return [self.bin / "embla-bench", "--coordinator", self.listen, "--admin", self.admin,
                "--update-share", "1", "--in-flight", "4", "--clients", str(trainers),
                "--ids", str(IDS), "--rows", str(rows), "--sharding", sharding, "--rounds", "1",
                "--requests", str(requests), "--seed", str(seed), "--no-ceilings", "-o", "json"]

    def updates(self, sharding, trainers, delay, seed):
        """Rows per second, and CPU seconds of trainers and of nodes per million rows."""
        self.link.delay = delay
        before = self.node_seconds()
        done = subprocess.run(
            self.trainer_command(trainers, 200_000, sharding, self.options.requests, seed),
            capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"embla-bench: {done.stderr}{done.stdout}")
        case = json.loads(done.stdout)["cases"][0]
        # The first requests, which are not timed, count as well, in all clusters.
        rows = self.options.requests * IDS / 1e6
        return (case["rows_per_second"], case["client_cpu_seconds_per_million_rows"],
                (self.node_seconds() - before) / rows)

    def embla(self, *arguments):
        done = subprocess.run([self.bin / "embla", "--admin", self.admin, *arguments],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"embla {' '.join(arguments)}: {done.stderr}{done.stdout}")

    def metric(self, name):
        """The first node's: its lines, by what is in the braces, with their values."""
        text = urllib.request.urlopen(f"http://{self.metrics}/metrics").read().decode()
        lines = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
        return {labels: float(value) for labels, value in lines}

    def rows_updated(self):
        """By the first node, so far."""
        return sum(self.metric("embla_rows_updated_total").values())

    def rate(self, seconds=3):
        """Rows/s of the first node."""
        begun, rows = time.monotonic(), self.rows_updated()
        time.sleep(seconds)
        return (self.rows_updated() - rows) / (time.monotonic() - begun)

    def memory(self, key):
        """Bytes of the first node: VmRSS, or VmHWM since forget_peak."""
        status = Path(f"/proc/{self.nodes[0]}/status").read_text()
        return 1024 * int(re.search(rf"{key}:\s*(\d+)", status)[1])

    def forget_peak(self):
        Path(f"/proc/{self.nodes[0]}/clear_refs").write_text("5")

    def hold(self):
        """Windows that held a device for at most 1 ms, and all of them."""
        buckets = self.metric("embla_copy_hold_seconds_bucket")
        within = [(float(re.search(r'le="([^"]+)"', labels)[1]), count)
                  for labels, count in buckets.items()]
        return (max((count for le, count in within if le <= 0.001), default=0),
                max((count for _, count in within), default=0))

    def copy(self):
        """Drains the second node and gives it its copy anew. Rows/s with both copies, with one and
        meanwhile, how long it took, and by how much the first node grew; None: it did not end."""
        both = self.rate()
        self.embla("node", "drain", "n1", "--wait")
        self.embla("node", "undrain", "n1")
        time.sleep(1)
        alone = self.rate()
        self.forget_peak()
        memory, begun, rows = self.memory("VmRSS"), time.monotonic(), self.rows_updated()
        done = subprocess.run([self.bin / "embla", "--admin", self.admin, "rebalance", "--wait"],
                              capture_output=True, text=True, timeout=self.options.copy_seconds)
        if done.returncode != 0:
            sys.exit(f"embla rebalance: {done.stderr}{done.stdout}")
        seconds = time.monotonic() - begun
        meanwhile = (self.rows_updated() - rows) / seconds
        return both, alone, meanwhile, seconds, self.memory("VmHWM") - memory

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.send_signal(signal.SIGCONT)
            process.wait()


class Copies:
    """A cluster whose second node gets its copy again and again, under trainers."""

    def __init__(self, bin_dir, work, options):
        self.bin, self.results, self.endless = bin_dir, [], 0
        self.cluster = Cluster(bin_dir, work, 2, options)
        self.trainers = subprocess.Popen(
            self.cluster.trainer_command(options.trainers, 1_180_000, "data_parallel", 100_000_000,
                                         1),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.cluster.processes.append(self.trainers)
        while self.cluster.rows_updated() < 1e6 and self.trainers.poll() is None:
            time.sleep(0.1)  # Until the other process has begun.

    def pause(self):
        """The trainers rest: another build has its turn."""
        self.trainers.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.trainers.send_signal(signal.SIGCONT)
        self.cluster.rate(1)

    def measure(self):
        if self.endless:
            return
        try:
            self.results.append(self.cluster.copy())
        except subprocess.TimeoutExpired:
            self.endless = self.cluster.options.copy_seconds

    def report(self):
        print(self.bin)
        if self.endless:
            print(f"  a copy had not ended after {self.endless} s")
        if not self.results:
            return
        both, alone, meanwhile, seconds, grown = zip(*self.results)
        def share(before):
            return statistics.median(m / b for m, b in zip(meanwhile, before))
        short, windows = self.cluster.hold()
        growth = ", ".join(str(g >> 20) for g in grown)
        print(f"  {statistics.median(both):,.0f} rows/s with both copies, "
              f"{statistics.median(alone):,.0f} with one; while one is made {share(both):.2f} and "
              f"{share(alone):.2f} of that, for {statistics.median(seconds):.1f} s; the primary "
              f"grew by {growth} MiB; {short:.0f} of {windows:.0f} windows held a device for 1 ms "
              f"or less", flush=True)


def measure_copies(work, options):
    builds = []
    try:
        for i, bin_dir in enumerate(options.bin.split(",")):
            builds.append(Copies(Path(bin_dir).resolve(), work / str(i), options))
            builds[-1].pause()
        for _ in range(options.rounds):
            for build in builds:
                build.go_on()
                build.measure()
                build.pause()
        for build in builds:
            build.go_on()
            build.report()
    finally:
        for build in builds:
            build.cluster.stop()


class Build:
    def __init__(self, bin_dir, work, options):
        self.bin = bin_dir
        self.delay = options.delay_ms / 1000
        self.trainers = options.trainers
        self.plain = [Cluster(bin_dir, work.with_name(f"{work.name}-plain{i}"), 1, options)
                      for i in range(2)]
        self.copies = Cluster(bin_dir, work.with_name(work.name + "-copies"), 2, options)
        self.linked = Cluster(bin_dir, work.with_name(work.name + "-linked"), 2, options,
                              linked=True)
        self.results = {"plain": [], "copies": [], "linked": [], "delayed": []}

    def measure(self, number):
        def plain():
            with ThreadPoolExecutor() as pool:
                results = pool.map(lambda cluster: cluster.updates(
                    "table_wise", max(self.trainers // 2, 1), 0.0, number), self.plain)
            (rate, *cpu), (other_rate, *other_cpu) = results
            return (rate + other_rate, *((a + b) / 2 for a, b in zip(cpu, other_cpu)))

        def copies(cluster, delay):
            return cluster.updates("data_parallel", self.trainers, delay, number)

        cases = [("plain", plain), ("copies", lambda: copies(self.copies, 0.0)),
                 ("linked", lambda: copies(self.linked, 0.0)),
                 ("delayed", lambda: copies(self.linked, self.delay))]
        for i in range(len(cases)):
            name, run = cases[(i + number) % len(cases)]
            self.results[name].append(run())

    def report(self):
        def median(values):
            return statistics.median(values)

        def ratio(cpu):
            """CPU seconds of a case by those of plain trainers and two plain nodes."""
            return median((client + nodes) / (plain[1] + 2 * plain[2])
                          for (_, client, nodes), plain in zip(cpu, self.results["plain"]))

        print(self.bin)
        for name, result in self.results.items():
            rate, client, nodes = (median(column) for column in zip(*result))
            print(f"  {name:8} {rate:12.0f} rows/s, CPU s per million rows: trainers {client:.3f}, "
                  f"nodes {nodes:.3f}" +
                  (" each" if name == "plain" else f"; of the plain ones {ratio(result):.2f}"))
        slow = median(delayed[0] / copies[0] for delayed, copies in
                      zip(self.results["delayed"], self.results["linked"]))
        print(f"  with {1000 * self.delay:g} ms of delay: {slow:.2f} of the updates without (aim: "
              f"0.8), copies: {ratio(self.results['copies']):.2f} of the CPU (aim: 1.15)",
              flush=True)

    def stop(self):
        for cluster in (*self.plain, self.copies, self.linked):
            cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--trainers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1200, help="updates per turn")
    parser.add_argument("--delay-ms", type=float, default=5)
    parser.add_argument("--copy", action="store_true")
    parser.add_argument("--copy-seconds", type=float, default=60)
    options = parser.parse_args()
    if options.copy:
        with tempfile.TemporaryDirectory() as directory:
            return measure_copies(Path(directory), options)
    with tempfile.TemporaryDirectory() as directory:
        builds = []
        try:
            for i, bin_dir in enumerate(options.bin.split(",")):
                builds.append(Build(Path(bin_dir).resolve(), Path(directory) / str(i), options))
            for number in range(options.rounds):
                for build in builds:
                    build.measure(number)
            for build in builds:
                build.report()
        finally:
            for build in builds:
                build.stop()


if __name__ == "__main__":
    main()
