"""`embla top` on a terminal, over a cluster that trains over TLS.

Usage: top_test.py BIN_DIR. Starts a coordinator, two nodes and a trainer.
"""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

BIN_DIR = None
SECONDS_MAX = 60  # Nodes measure over five seconds.
LOOK_SECONDS = 0.02  # Between two looks at a file that is to come.
CODES = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")
BEGIN, LEAVE = "\x1b[H", "\x1b[?1049l"


class Cluster:
    def __init__(self, work):
        self.work = work
        self.running = []
        self.ports = {}
        self.logs = contextlib.ExitStack()

    def begin(self):
        work = self.work
        self.run("embla", "certs", "init", f"--dir={work}", "--cluster=test")
        for role, name in (("coordinator", "c0"), ("node", "n0"), ("node", "n1"),
                           ("admin", "ann"), ("reader", "rea")):  # fmt: skip
            self.run("embla", "certs", "issue", f"--dir={work}", f"--role={role}", f"--name={name}")
        self.serve("coordinator", "coordinator-c0", "embla-coordinator", "--heartbeat-ms=200",
                   "--admin-listen=127.0.0.1:0", f"--state-dir={work}/state")  # fmt: skip
        for name in ("n0", "n1"):
            self.serve(name, f"node-{name}", "embla-shard", "--devices=cpu:2",
                       f"--coordinator={self.ports['coordinator']['listen']}",
                       "--memory-per-device=64MiB")  # fmt: skip

    def tls(self, certificate):
        return [f"--tls-cert={self.work}/{certificate}.pem", f"--tls-ca={self.work}/ca.pem"]

    def addresses(self):
        ports = self.ports["coordinator"]
        return [f"--coordinator={ports['listen']}", f"--admin={ports['admin']}"]

    def top(self, *flags):
        return [str(BIN_DIR / "embla"), "top", *self.addresses(), *self.tls("reader-rea"), *flags]

    def run(self, program, *words):
        done = subprocess.run([BIN_DIR / program, *words], capture_output=True, text=True,
                              check=False, timeout=SECONDS_MAX)  # fmt: skip
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, name, command):
        log = self.logs.enter_context(open(self.work / f"{name}.log", "w", encoding="utf-8"))
        self.running.append(subprocess.Popen(command, stdout=log, stderr=log))

    def serve(self, name, certificate, program, *flags):
        port_file = self.work / f"{name}.json"
        self.start(name, [BIN_DIR / program, "--listen=127.0.0.1:0", f"--port-file={port_file}",
                          *self.tls(certificate), *flags])  # fmt: skip
        give_up = time.monotonic() + SECONDS_MAX
        while not port_file.exists():
            if self.running[-1].poll() is not None or time.monotonic() > give_up:
                raise AssertionError((self.work / f"{name}.log").read_text())
            time.sleep(LOOK_SECONDS)
        self.ports[name] = json.loads(port_file.read_text())

    def train(self):
        self.start("trainer", [BIN_DIR / "embla-train", *self.addresses(), *self.tls("admin-ann"),
                               "--wait", "--generate=20000", "--validation-fraction=0",
                               "--epochs=100000", "--trainers=1"])  # fmt: skip
        return self.running[-1]

    def stop(self):
        for process in self.running:
            process.kill()
            process.wait()
        self.logs.close()


class Terminal:
    """A program on a terminal of `rows` x `columns`."""

    def __init__(self, command, rows, columns):
        self.end, program_end = pty.openpty()
        self.resize(rows, columns)
        self.settings = termios.tcgetattr(self.end)
        self.text = ""
        self.process = subprocess.Popen(
            command, stdin=program_end, stdout=program_end, stderr=program_end,
            env={**os.environ, "TERM": "xterm"}, start_new_session=True,
        )  # fmt: skip
        os.close(program_end)

    def resize(self, rows, columns):
        termios.tcsetwinsize(self.end, (rows, columns))

    def press(self, keys):
        os.write(self.end, keys.encode())

    def read(self, seconds):
        """The program's next output; nothing: it has ended, or is silent so long."""
        if not select.select([self.end], [], [], seconds)[0]:
            return ""
        try:
            return os.read(self.end, 65536).decode()
        except OSError:
            return ""

    def picture(self):
        """The lines of the last whole picture."""
        whole = self.text.split("\x1b[J")[:-1]
        if not whole or BEGIN not in whole[-1]:
            return []
        return CODES.sub("", whole[-1].rsplit(BEGIN, 1)[1]).split("\r\n")

    def await_picture(self, condition, what):
        give_up = time.monotonic() + SECONDS_MAX
        while not condition(self.picture()):
            left = give_up - time.monotonic()
            new = self.read(max(left, 0))
            self.text = (self.text + new)[-100_000:]
            if not new:
                raise AssertionError(f"no {what} in:\n" + "\n".join(self.picture()))
        return self.picture()

    def await_end(self):
        while new := self.read(SECONDS_MAX):
            self.text += new
        return self.process.wait(timeout=SECONDS_MAX)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.end)


def has(pattern):
    return lambda picture: any(re.search(pattern, line) for line in picture)


class TopTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="top")
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = Cluster(Path(folder.name))
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.begin()
        cls.trainer = cls.cluster.train()

    def open(self, *flags, rows=40, columns=120):
        terminal = Terminal(self.cluster.top("--interval=1", *flags), rows, columns)
        self.addCleanup(terminal.close)
        return terminal

    def test_it_shows_the_rates_of_training_and_leaves_by_q(self):
        self.assertIsNone(self.trainer.poll(), (self.cluster.work / "trainer.log").read_text())
        terminal = self.open()
        # Lookups, updates and rows of a second, none of them 0.
        terminal.await_picture(has(r"^n[01] +live .*% .* [1-9][\d,.]* +[1-9][\d,.]* +\d"), "rates")
        terminal.await_picture(has(r"^model\S* +[1-9][\d,.]* +[1-9][\d,.]*$"), "rates of tables")
        picture = terminal.await_picture(has(r"^cluster .* 2 of 2 nodes"), "state")
        self.assertRegex(picture[-1], "^q: quit$")
        self.assertEqual(sum("  cpu" in line for line in picture), 4)
        terminal.press("x")
        terminal.press("q")
        self.assertEqual(terminal.await_end(), 0)
        self.assertTrue(terminal.text.endswith(LEAVE), repr(terminal.text[-100:]))
        self.assertEqual(termios.tcgetattr(terminal.end), terminal.settings)
        self.assertIsNone(self.trainer.poll(), (self.cluster.work / "trainer.log").read_text())

    def test_the_picture_fits_the_terminal_whose_size_changes(self):
        terminal = self.open(rows=8, columns=30)
        picture = terminal.await_picture(has("  and [0-9]+ more"), "what is left out")
        self.assertLessEqual(len(picture), 8)
        self.assertLessEqual(max(map(len, picture)), 30)
        terminal.resize(50, 110)
        picture = terminal.await_picture(has("lookup p99 +update p99$"), "columns of the right")
        self.assertFalse(has("  and [0-9]+ more")(picture))

    def test_signals_put_the_terminal_back(self):
        terminal = self.open()
        terminal.await_picture(has("^cluster"), "first picture")
        terminal.process.send_signal(signal.SIGTERM)
        self.assertEqual(terminal.await_end(), 0)
        self.assertTrue(terminal.text.endswith(LEAVE))
        self.assertEqual(termios.tcgetattr(terminal.end), terminal.settings)

    def test_without_a_terminal_tables_are_repeated(self):
        with subprocess.Popen(self.cluster.top("--interval=1"), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True) as process:  # fmt: skip
            headers = 0
            for line in process.stdout:
                self.assertNotIn("\x1b", line)
                headers += line.startswith("cluster ")
                if headers == 2:
                    break
            process.kill()
        self.assertEqual(headers, 2)

    def test_once_it_is_one_document(self):
        view = json.loads(self.cluster.run(*self.cluster.top("--once", "-o", "json")))
        self.assertEqual([node["state"] for node in view["nodes"]], ["live", "live"])
        self.assertEqual(len(view["nodes"][0]["devices"]), 2)
        self.assertEqual(view["no_answer"], "")


if __name__ == "__main__":
    BIN_DIR = Path(sys.argv.pop(1)).resolve()
    unittest.main()
