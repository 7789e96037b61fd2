#!/usr/bin/env python3
"""How the cost of plans grows with the number of tables: a coordinator and two nodes of two
devices, by real processes on loopback.

    bench/plan_growth.py [--build build/release] [--tables 250,500,1000,2000,5000]

Creates the tables one after the other (row_wise, 1,000 rows x 16), and prints for every count of
them: CPU seconds so far of the coordinator and of the busier node, and CPU milliseconds that one
further change costs each of them (mean of 20 changes of a learning rate); at the end, how long the
coordinator takes to serve again after a restart. Growth exponents are least squares over the
logarithms: of the CPU seconds to make all tables, and of the milliseconds per change.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHANGES = 20
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def await_file(path, process):
    deadline = time.monotonic() + 60
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"{process.args[0]} does not serve; its log: {path.with_suffix('.log')}")
        time.sleep(0.01)  # Until the other process has written the file.
    return json.loads(path.read_text())


class Cluster:
    def __init__(self, bin_dir, work):
        self.bin, self.work = bin_dir, work
        self.coordinator, self.address, self.admin = self.start_coordinator("127.0.0.1:0")
        self.nodes = [self.start(f"n{i}", ["embla-shard", "--name", f"n{i}", "--coordinator",
                                           self.address, "--devices", "cpu:2", "--data-dir",
                                           str(work / f"data{i}")])
                      for i in range(2)]
        for i, node in enumerate(self.nodes):
            await_file(work / f"n{i}.port", node)

    def start(self, name, command):
        log = open(self.work / f"{name}.log", "a")
        command[0] = str(self.bin / command[0])
        return subprocess.Popen([*command, "--port-file", str(self.work / f"{name}.port")],
                                stdout=log, stderr=log)

    def start_coordinator(self, listen, admin_listen="127.0.0.1:0"):
        process = self.start("c", ["embla-coordinator", "--listen", listen, "--admin-listen",
                                   admin_listen, "--state-dir", str(self.work / "state")])
        ports = await_file(self.work / "c.port", process)
        return process, ports["listen"], ports["admin"]

    def embla(self, *arguments):
        return subprocess.run([self.bin / "embla", "--admin", self.admin, *arguments], check=True,
                              capture_output=True, text=True).stdout

    def restart_seconds(self):
        self.coordinator.terminate()
        self.coordinator.wait()
        (self.work / "c.port").unlink()
        began = time.monotonic()
        self.coordinator, *_ = self.start_coordinator(self.address, self.admin)
        return time.monotonic() - began

    def stop(self):
        for process in [*self.nodes, self.coordinator]:
            process.terminate()
            process.wait()


def exponent(counts, values):
    points = [(math.log(n), math.log(max(v, 1e-9))) for n, v in zip(counts, values)]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return (sum((x - mean_x) * (y - mean_y) for x, y in points) /
            sum((x - mean_x) ** 2 for x, _ in points))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--tables", default="250,500,1000,2000,5000")
    options = parser.parse_args()
    counts = [int(count) for count in options.tables.split(",")]
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster((options.build / "bin").resolve(), Path(directory))
        try:
            report(cluster, Path(directory), counts)
        finally:
            cluster.stop()


def report(cluster, work, counts):
    made = 0
    rows = []
    print("| tables | coordinator CPU s | node CPU s | ms per change: coordinator | node |")
    print("|---|---|---|---|---|")
    spent = [0.0, 0.0]
    for count in counts:
        names = [f"t{i}" for i in range(made, count)]
        file = work / "tables.json"
        file.write_text(json.dumps([{"name": name, "rows": 1000, "dim": 16,
                                     "placement": {"sharding": "row_wise"}} for name in names]))
        processes = [cluster.coordinator, *cluster.nodes]
        before = [cpu_seconds(process) for process in processes]
        cluster.embla("-o", "json", "table", "create", "--file", str(file))
        after = [cpu_seconds(process) for process in processes]
        spent[0] += after[0] - before[0]
        spent[1] += max(b - a for a, b in zip(before[1:], after[1:]))
        made = count
        for i in range(CHANGES):
            cluster.embla("table", "set", "t0", f"learning_rate={0.01 + 0.001 * (i + count % 7)}")
        changed = [cpu_seconds(process) for process in processes]
        per_change = [(b - a) / CHANGES * 1000 for a, b in zip(after, changed)]
        rows.append((spent[0], spent[1], per_change[0], max(per_change[1:])))
        print(f"| {count:,} | {spent[0]:.2f} | {spent[1]:.2f} | {rows[-1][2]:.2f} | "
              f"{rows[-1][3]:.2f} |", flush=True)
    names = ("coordinator CPU s", "node CPU s", "coordinator ms per change", "node ms per change")
    for i, name in enumerate(names):
        print(f"exponent of {name}: {exponent(counts, [row[i] for row in rows]):.2f}")
    print(f"restart of the coordinator: {cluster.restart_seconds():.2f} s")


if __name__ == "__main__":
    main()
