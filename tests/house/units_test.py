"""The systemd units are valid and locked down, and the servers answer systemd as the units say.

Usage: units_test.py BIN_DIR. systemd does not run: it is asked what it thinks of the units, and
their commands run with a socket of this test as NOTIFY_SOCKET.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
UNITS = [ROOT / "deploy/systemd" / name for name in
         ("embla-coordinator.service", "embla-shard@.service")]  # fmt: skip
# In tenths of systemd's measure of exposure, which goes from 0 to 10.
EXPOSURE_MAX = 20
SECONDS_MAX = 60
BIN_DIR = None


def settings(unit):
    """{key: [values]} of a unit's [Service]."""
    found = {}
    for line in unit.read_text().split("[Service]")[1].split("[Install]")[0].splitlines():
        if line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


class Server:
    """A unit's command, started as systemd would, with folders and ports of the test."""

    def __init__(self, unit, folder, *flags, name="node1", watchdog_s=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify = str(Path(folder, f"notify-{unit.stem}-{time.monotonic_ns()}"))
        self.socket.bind(notify)
        self.fields = []  # ["READY=1", "STATUS=..."], as they came.
        environment = {"NOTIFY_SOCKET": notify, "PATH": os.environ["PATH"]}
        if watchdog_s:
            environment["WATCHDOG_USEC"] = str(watchdog_s * 1_000_000)
        command = settings(unit)["ExecStart"][0].replace("$EMBLA_FLAGS", "").replace("%i", name)
        words = [w.replace("/usr/bin", str(BIN_DIR)).replace("/var/lib/embla", folder)
                 .replace("/etc/embla", folder) for w in shlex.split(command)]  # fmt: skip
        self.log = open(Path(folder, f"{unit.stem}.log"), "a", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*words, *flags], env=environment, stdout=self.log, stderr=self.log
        )

    def await_field(self, wanted):
        """Returns when systemd was told a field that begins so; fails when the server ends."""
        give_up = time.monotonic() + SECONDS_MAX
        self.socket.settimeout(0.1)
        while not any(field.startswith(wanted) for field in self.fields):
            if time.monotonic() > give_up or self.process.poll() is not None:
                raise AssertionError(f"no {wanted}; told: {self.fields}; {self.text()}")
            try:
                self.fields += self.socket.recv(4096).decode().splitlines()
            except TimeoutError:
                pass

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(SECONDS_MAX)
        self.socket.setblocking(False)
        try:
            while True:
                self.fields += self.socket.recv(4096).decode().splitlines()
        except BlockingIOError:
            pass
        return code

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.socket.close()

    def text(self):
        return Path(self.log.name).read_text()[-2000:]


class UnitFilesTest(unittest.TestCase):
    def setUp(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze here")

    def test_systemd_finds_nothing_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            for unit in UNITS:
                # The programs need not be installed.
                text = unit.read_text().replace("/usr/bin/embla", f"{BIN_DIR}/embla")
                Path(folder, unit.name).write_text(text)
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
                 *[str(Path(folder, unit.name)) for unit in UNITS]],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_they_are_locked_down(self):
        for unit in UNITS:
            done = subprocess.run(
                ["systemd-analyze", "security", "--offline=true", "--no-pager",
                 f"--threshold={EXPOSURE_MAX}", str(unit)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_server_that_hangs_or_is_not_ready_is_noticed(self):
        for unit in UNITS:
            found = settings(unit)
            self.assertEqual(found["Type"], ["notify"])
            self.assertRegex(found["WatchdogSec"][0], r"^\d+$")
            self.assertGreaterEqual(int(found["LimitNOFILE"][0]), 65536)


class CommandsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name in ("coordinator.conf", "shard.conf"):
            shutil.copy(ROOT / "deploy/config" / name, self.folder)

    def start(self, unit, *flags, **options):
        server = Server(unit, self.folder, *flags, **options)
        self.addCleanup(server.close)
        return server

    def start_coordinator(self, **options):
        ports = Path(self.folder, "ports.json")
        free = [f"--{kind}=127.0.0.1:0" for kind in ("listen", "admin-listen", "metrics-listen")]
        server = self.start(UNITS[0], *free, f"--port-file={ports}", **options)
        server.await_field("READY=1")
        return server, re.search(r'"listen":"([^"]+)"', ports.read_text()).group(1)

    def start_shard(self, *flags, **options):
        return self.start(UNITS[1], "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
                          "--memory-per-device=64MiB", *flags, **options)  # fmt: skip

    def test_servers_are_ready_when_they_serve_and_say_that_they_stop(self):
        coordinator, address = self.start_coordinator(watchdog_s=1)
        config = Path(self.folder, "shard.conf")
        config.write_text(config.read_text().replace(
            '# coordinator = "10.0.0.1:7070"', f'coordinator = "{address}"'))  # fmt: skip
        shard = self.start_shard(watchdog_s=1)
        for server in (coordinator, shard):
            server.await_field("READY=1")
            server.await_field("WATCHDOG=1")
            server.await_field("STATUS=serving")
        self.assertTrue(Path(self.folder, "nodes/node1").is_dir())
        self.assertIn("name=node1", shard.text())
        for server in (shard, coordinator):
            self.assertEqual(server.stop(), 0)
            self.assertIn("STOPPING=1", server.fields)

    def test_a_node_without_a_coordinator_is_not_ready_and_says_why(self):
        shard = self.start_shard("--coordinator=127.0.0.1:1")
        shard.await_field("STATUS=no coordinator")
        self.assertEqual(shard.stop(), 0)
        self.assertNotIn("READY=1", shard.fields)

    def test_a_server_that_is_stopped_tells_the_watchdog_nothing(self):
        coordinator, _ = self.start_coordinator(watchdog_s=1)
        coordinator.process.send_signal(signal.SIGSTOP)
        coordinator.socket.settimeout(1)
        with self.assertRaises(TimeoutError):
            while True:
                coordinator.socket.recv(4096)
        coordinator.process.send_signal(signal.SIGCONT)
        coordinator.fields.clear()
        coordinator.await_field("WATCHDOG=1")
        self.assertEqual(coordinator.stop(), 0)

    def test_without_configuration_a_node_does_not_start(self):
        shard = self.start_shard()
        self.assertEqual(shard.process.wait(SECONDS_MAX), 2)
        self.assertIn("coordinator is required", shard.text())
        self.assertIn("2", settings(UNITS[1])["RestartPreventExitStatus"])

    def test_a_flag_that_the_configuration_misspells_is_refused(self):
        Path(self.folder, "coordinator.conf").write_text('lisen = "127.0.0.1:0"\n')
        coordinator = self.start(UNITS[0])
        self.assertEqual(coordinator.process.wait(SECONDS_MAX), 2)
        self.assertIn("lisen", coordinator.text())


if __name__ == "__main__":
    BIN_DIR = Path(sys.argv.pop(1)).resolve()
    unittest.main()
