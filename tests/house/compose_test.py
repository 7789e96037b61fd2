"""Runs the commands of deploy/compose.yaml outside containers, on loopback, to the end of training.

Usage: compose_test.py BIN_DIR. What a container gives is replaced: listeners take free loopback
ports, where metrics are plaintext, service names become addresses, volumes are folders. The trainer
gets fewer examples.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SKIPPED = 77
EXAMPLES = 5000
START_SECONDS_MAX, TRAIN_SECONDS_MAX, STOP_SECONDS_MAX = 60, 300, 30
LOOK_SECONDS = 0.02  # Between two looks at a file.
LISTENERS = {"--listen": "listen", "--admin-listen": "admin", "--metrics-listen": "metrics"}


def has_ended(process, seconds):
    """Waits for the end of `process`, at most so long."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


class Cluster:
    def __init__(self, bin_dir, work):
        self.bin_dir = bin_dir
        self.work = Path(work)
        self.running = []  # In the order of their start.
        self.addresses = {}  # "coordinator:7070" -> "127.0.0.1:34567"

    def in_volumes(self, service, text):
        """`text` with the folders that the service's volumes are here."""
        for volume in service["volumes"]:
            if isinstance(volume, str):
                source, target = volume.split(":")[:2]
            else:
                target = volume["target"]
                source = f"{volume['source']}/{volume['volume']['subpath']}"
            folder = self.work / source
            folder.mkdir(exist_ok=True)
            text = text.replace(target, str(folder))
        return text

    def command(self, service):
        program, *arguments = service["command"]
        return [program] + [self.outside(service, a) for a in arguments]

    def outside(self, service, argument):
        if "\n" in argument:  # A script.
            return self.in_volumes(service, argument.replace("$$", "$"))
        flag, _, value = argument.partition("=")
        if flag in LISTENERS:
            return f"{flag}=127.0.0.1:0"
        if flag == "--advertise":
            return "--advertise="
        if flag == "--generate":
            return f"--generate={EXAMPLES}"
        value = self.in_volumes(service, value)
        return f"{flag}={self.addresses.get(value, value)}" if value else flag

    def environment(self, service):
        own = {name: self.addresses.get(value, self.in_volumes(service, value))
               for name, value in service.get("environment", {}).items()}  # fmt: skip
        return os.environ | own | {"PATH": f"{self.bin_dir}:{os.environ['PATH']}"}

    def run(self, service, command):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TRAIN_SECONDS_MAX,
            env=self.environment(service),
        )
        print(done.stdout[-2000:], done.stderr[-2000:])
        if done.returncode != 0:
            raise RuntimeError(f"{command} ended with {done.returncode}")

    def start(self, name, service):
        words = service["command"]
        port_file = self.work / f"{name}.json"
        command = [a for a in self.command(service) if a != "--advertise="]
        command.append(f"--port-file={port_file}")
        with open(self.work / f"{name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log,
                                       env=self.environment(service))  # fmt: skip
        self.running.append((name, process))
        give_up = time.monotonic() + START_SECONDS_MAX
        while not port_file.exists():
            if has_ended(process, LOOK_SECONDS) or time.monotonic() > give_up:
                raise RuntimeError(f"{name} did not start")
        ports = json.loads(port_file.read_text(encoding="utf-8"))
        for argument in words:
            flag, _, value = argument.partition("=")
            if flag in LISTENERS:
                inside = f"{name}:{value.rsplit(':', 1)[1]}"
                self.addresses[inside] = ports[LISTENERS[flag]]

    def become_healthy(self, name, service):
        """Asks as the engine would, until the answer is good."""
        address = self.addresses[f"{name}:9090"]
        words = [w.replace("https://localhost:9090", f"http://{address}")
                 for w in service["healthcheck"]["test"][1:]]  # fmt: skip
        give_up = time.monotonic() + START_SECONDS_MAX
        while subprocess.run(words, env=self.environment(service), check=False).returncode:
            if time.monotonic() > give_up:
                raise RuntimeError(f"{name} is not healthy")

    def stop(self):
        """SIGTERM to the youngest first; every exit code must be 0."""
        codes = {}
        for name, process in reversed(self.running):
            process.send_signal(signal.SIGTERM)
            try:
                codes[name] = process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait()
        self.running = []
        return codes

    def logs(self):
        texts = [f"--- {p.name}\n{p.read_text()[-2000:]}" for p in sorted(self.work.glob("*.log"))]
        return "\n".join(texts)


def main():
    try:
        import yaml
    except ImportError:
        print("SKIPPED: no python3-yaml here")
        return SKIPPED
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    with tempfile.TemporaryDirectory() as work:
        cluster = Cluster(Path(sys.argv[1]).resolve(), work)
        try:
            for _ in range(2):  # The second time certificates are renewed.
                cluster.run(services["certs"], cluster.command(services["certs"]))
            servers = {name: service for name, service in services.items()
                       if re.fullmatch(r"embla-(coordinator|shard)", service["command"][0])}
            for name, service in servers.items():
                cluster.start(name, service)
            for name, service in servers.items():
                cluster.become_healthy(name, service)
            for name in ("train", "cli"):
                cluster.run(services[name], cluster.command(services[name]))
            codes = cluster.stop()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            cluster.stop()
            print(f"FAILED: {error}\n{cluster.logs()}")
            return 1
        print(f"exit codes: {codes}")
        if any(codes.values()):
            print(cluster.logs())
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
