#!/usr/bin/env python3
"""How the cost of plans grows with the number of tables: a coordinator, two nodes of two devices,
and a client, by real processes on loopback.

    bench/plan_growth.py [--build build/release] [--tables 250,500,1000,2000,5000] [--one-by-one]

Creates the tables (row_wise, 1,000 rows x 16) by one file, and so one change, per count of them;
with --one-by-one each by a change of its own. Prints for every count: CPU seconds so far of the
coordinator, of the busier node and of the client, and CPU milliseconds that one further change
costs each of them (mean of 50 changes of a learning rate, less what they use at rest); at the end,
how long the coordinator takes to serve again after a restart, and the client's memory. Growth
exponents are least squares over the logarithms: of the CPU seconds to make all tables, and of the
milliseconds per change. The client is `embla table evictions --follow`, which keeps up with plans
and does nothing else.
"""

import argparse
import json
import math
import os
import subprocess
import tempfile
import time
from pathlib import Path

from port_files import await_file

CHANGES = 50
NAMES = ("coordinator", "node", "client")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


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

    def start_client(self):
        self.embla("table", "create", "--name", "watched", "--capacity", "64", "--buckets", "1",
                   "--zch", "--dim", "4", "--sharding", "table_wise",
                   "--eviction-buffer", "1MiB")
        with open(self.work / "client.log", "a") as log:
            self.client = subprocess.Popen(
                [self.bin / "embla", "--coordinator", self.address, "table", "evictions",
                 "--table", "watched", "--follow"], stdout=log, stderr=log)

    def cpu_seconds(self):
        """CPU seconds of the coordinator, the nodes' processes and the client."""
        if self.client.poll() is not None:
            raise SystemExit("the client has ended: " + (self.work / "client.log").read_text())
        return [cpu_seconds(process) for process in
                (self.coordinator, *self.nodes, self.client)]

    def await_plan(self):
        """Waits until the nodes have the newest plan."""
        while True:
            newest = json.loads(self.embla("-o", "json", "cluster", "status"))["plan_version"]
            nodes = json.loads(self.embla("-o", "json", "node", "ls"))
            if all(node["plan_version"] == newest for node in nodes):
                return
            time.sleep(0.05)

    def start(self, name, command):
        command[0] = str(self.bin / command[0])
        with open(self.work / f"{name}.log", "a") as log:
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
        for process in [self.client, *self.nodes, self.coordinator]:
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
    parser.add_argument("--one-by-one", action="store_true")
    options = parser.parse_args()
    counts = [int(count) for count in options.tables.split(",")]
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster((options.build / "bin").resolve(), Path(directory))
        try:
            cluster.start_client()
            report(cluster, Path(directory), counts, options.one_by_one)
        finally:
            cluster.stop()


def create(cluster, work, names, one_by_one):
    tables = [{"name": name, "rows": 1000, "dim": 16, "placement": {"sharding": "row_wise"}}
              for name in names]
    file = work / "tables.json"
    for part in [[table] for table in tables] if one_by_one else [tables]:
        file.write_text(json.dumps(part))
        cluster.embla("-o", "json", "table", "create", "--file", str(file))
    cluster.await_plan()


def difference(before, after):
    """The values of the coordinator, the busier node and the client."""
    spent = [b - a for a, b in zip(before, after)]
    return [spent[0], max(spent[1:-1]), spent[-1]]


def cost_of_changes(cluster, count):
    """CPU milliseconds per change."""
    began, before = time.monotonic(), cluster.cpu_seconds()
    for i in range(CHANGES):
        cluster.embla("table", "set", "t0", f"learning_rate={0.01 + 0.001 * (i + count % 7)}")
    cluster.await_plan()
    seconds, changed = time.monotonic() - began, cluster.cpu_seconds()
    time.sleep(seconds)  # Heartbeats and ticks, for as long.
    rest = difference(changed, cluster.cpu_seconds())
    return [max(spent - idle, 0) / CHANGES * 1000
            for spent, idle in zip(difference(before, changed), rest)]


def report(cluster, work, counts, one_by_one):
    made = 0
    rows = []
    spent = [0.0] * len(NAMES)
    print("| tables | " + " | ".join(f"{name} CPU s" for name in NAMES) + " | " +
          " | ".join(f"{name} ms per change" for name in NAMES) + " |")
    print("|---" * (1 + 2 * len(NAMES)) + "|")
    for count in counts:
        before = cluster.cpu_seconds()
        create(cluster, work, [f"t{i}" for i in range(made, count)], one_by_one)
        more = difference(before, cluster.cpu_seconds())
        spent = [a + b for a, b in zip(spent, more)]
        made = count
        rows.append([*spent, *cost_of_changes(cluster, count)])
        print(f"| {count:,} | " + " | ".join(f"{value:.2f}" for value in rows[-1]) + " |",
              flush=True)
    for i, name in enumerate([f"{name} CPU s" for name in NAMES] +
                             [f"{name} ms per change" for name in NAMES]):
        values = [row[i] for row in rows]
        shown = f"{exponent(counts, values):.2f}" if min(values) > 0 else "too small to tell"
        print(f"exponent of {name}: {shown}")
    status = Path(f"/proc/{cluster.client.pid}/status").read_text()
    print("client:", next(line for line in status.splitlines() if line.startswith("VmRSS")))
    print(f"restart of the coordinator: {cluster.restart_seconds():.2f} s, "
          f"{cpu_seconds(cluster.coordinator):.2f} CPU s")


if __name__ == "__main__":
    main()
