"""A coordinator and two shard servers of two devices on loopback, and runs of embla-train there."""

import json
import os
import subprocess
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS_MAX = 120


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Cluster:
    """Processes that end with the `with` block. `work` is a folder for their files and logs."""

    def __init__(self, bin_dir, work):
        self.bin, self.work = Path(bin_dir), Path(work)
        self.processes = []

    def __enter__(self):
        try:
            state = ["--admin-listen", "127.0.0.1:0", "--state-dir", str(self.work / "state")]
            ports = self._start("coordinator", "embla-coordinator", *state)
            self.coordinator, self.admin = ports["listen"], ports["admin"]
            shard = ["--coordinator", self.coordinator, "--devices", "cpu:2"]
            for node in ("node1", "node2"):
                self._start(node, "embla-shard", "--name", node, *shard)
            self._await_nodes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait()

    def server_cpu_seconds(self):
        """CPU seconds of the coordinator and the shard servers since they began."""
        return sum(cpu_seconds(process.pid) for process in self.processes)

    def train(self, prefix, *options):
        """The report of one run of embla-train, whose tables begin with `prefix`."""
        report = self.work / f"{prefix}.json"
        cluster = ["--coordinator", self.coordinator, "--admin", self.admin]
        names = ["--prefix", prefix, "--report", report, "--quiet"]
        command = [self.bin / "embla-train", *cluster, *names, *options]
        done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"embla-train ended with {done.returncode}: {done.stderr}")
        return json.loads(report.read_text())

    def _start(self, name, program, *options):
        port_file = self.work / f"{name}.port"
        addresses = ["--listen", "127.0.0.1:0", "--metrics-listen", ""]
        command = [str(self.bin / program), *addresses, "--port-file", str(port_file), *options]
        with open(self.work / f"{name}.log", "w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.processes.append(process)
        self._await(lambda: port_file.exists() and port_file.stat().st_size > 0, process, name)
        return json.loads(port_file.read_text())

    def _await_nodes(self):
        def both_live():
            command = [self.bin / "embla", "--admin", self.admin, "cluster", "status", "-o", "json"]
            status = subprocess.run(command, check=False, capture_output=True, text=True)
            return status.returncode == 0 and json.loads(status.stdout)["nodes_live"] == 2

        self._await(both_live, self.processes[0], "the cluster")

    def _await(self, condition, process, what):
        deadline = time.monotonic() + START_SECONDS_MAX
        while not condition():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{what} does not serve; its log is in {self.work}")
            time.sleep(0.05)  # Until another process has done its part.
