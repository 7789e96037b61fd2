#!/usr/bin/env python3
"""How much of its work does a node still do when it is asked for twice of what it can?

    bench/overload_bench.py [--bin build/release/bin] [--rounds 5] [--clients 4] [--requests 2000]

A node on one core, embla-bench on another one: lookups, then updates of 4,096 ids, dim 64, fp32,
four in flight per client. That many clients keep the node busy all the time; twice as many ask for
twice as much. Prints medians of rows per second at once and at twice the load, and of their ratio
in the same round (aim: 0.9), and the share of its core that the node used.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from port_files import await_file

TICKS = os.sysconf("SC_CLK_TCK")


def start(core, work, name, *command):
    file = work / f"{name}.port"
    with open(work / f"{name}.log", "w") as log:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command, "--listen", "127.0.0.1:0", "--metrics-listen",
             "127.0.0.1:0", "--port-file", file], stdout=log, stderr=log)
    return process, await_file(file, process)


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(options, ports, node, share, clients, seed):
    """Rows per second, and the share of its core that the node used."""
    before, begun = cpu_seconds(node.pid), time.monotonic()
    done = subprocess.run(
        ["taskset", "-c", "1", options.bin / "embla-bench", "--coordinator", ports["listen"],
         "--admin", ports["admin"], "--update-share", str(share), "--clients", str(clients),
         "--in-flight", "4", "--rows", "200000", "--rounds", "1", "--requests",
         str(options.requests), "--seed", str(seed), "--no-ceilings", "-o", "json"],
        capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"embla-bench: {done.stderr}{done.stdout}")
    used = (cpu_seconds(node.pid) - before) / (time.monotonic() - begun)
    return json.loads(done.stdout)["cases"][0]["rows_per_second"], used


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=Path, default=Path("build/release/bin"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--requests", type=int, default=2000)
    options = parser.parse_args()
    processes = []
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        try:
            coordinator, ports = start(1, work, "c", options.bin / "embla-coordinator",
                                       "--admin-listen", "127.0.0.1:0", "--state-dir",
                                       work / "state")
            processes.append(coordinator)
            node, _ = start(0, work, "n", options.bin / "embla-shard", "--name", "n",
                            "--coordinator", ports["listen"], "--devices", "cpu:1")
            processes.append(node)
            print(f"{'':8} {'once rows/s':>12} {'twice rows/s':>12} {'ratio':>6} {'node':>6}")
            for name, share in (("lookups", 0), ("updates", 1)):
                pairs = []
                for number in range(options.rounds):
                    loads = [options.clients, 2 * options.clients]
                    results = {clients: run(options, ports, node, share, clients, number)
                               for clients in (loads if number % 2 == 0 else loads[::-1])}
                    pairs.append([results[clients] for clients in loads])
                once = statistics.median(once for (once, _), _ in pairs)
                twice = statistics.median(twice for _, (twice, _) in pairs)
                ratio = statistics.median(b[0] / a[0] for a, b in pairs)
                used = statistics.median(a[1] for a, _ in pairs)
                print(f"{name:8} {once:12.0f} {twice:12.0f} {ratio:6.2f} {used:6.2f}", flush=True)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
