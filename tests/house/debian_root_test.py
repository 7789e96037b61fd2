"""A life of the packages in an empty Debian, which debian_root.sh has made.

Usage: debian_root_test.py ROOT VERSION NEXT. /VERSION and /NEXT of ROOT have the packages of two
versions. The servers run by the commands of their units, as user embla, and tell this test by
NOTIFY_SOCKET when they are ready.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SECONDS_MAX = 120
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
               "DEBIAN_FRONTEND": "noninteractive"}  # fmt: skip
ROOT = Path(sys.argv[1])


BEGUN = time.monotonic()


def say(text):
    print(f"== {time.monotonic() - BEGUN:.0f} s: {text}", flush=True)


def inside(*command, code=0):
    """Runs a program in the root and returns its output; any other exit code is a failure."""
    done = subprocess.run(["chroot", str(ROOT), *command], env=ENVIRONMENT, capture_output=True,
                          text=True, check=False, timeout=600)  # fmt: skip
    assert done.returncode == code, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


class Server:
    """A unit's command, with `flags` for $EMBLA_FLAGS."""

    def __init__(self, unit, instance="", *flags):
        text = (ROOT / "usr/lib/systemd/system" / unit).read_text()
        command = re.search(r"(?m)^ExecStart=(.*)$", text)[1].replace("%i", instance)
        state = re.search(r"(?m)^StateDirectory=(.*)$", text)[1].replace("%i", instance)
        inside("install", "-d", "-o", "embla", "-g", "embla", f"/var/lib/{state}")
        words = [w for w in shlex.split(command) if w != "$EMBLA_FLAGS"]
        name = f"notify-{time.monotonic_ns()}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(ROOT / "run" / name))
        os.chmod(ROOT / "run" / name, 0o666)
        self.log = ROOT / "tmp" / f"{instance or 'coordinator'}.log"
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["chroot", "--userspec=embla:embla", str(ROOT), *words, *flags], stdout=log,
                stderr=log, env={**ENVIRONMENT, "NOTIFY_SOCKET": f"/run/{name}"},
            )  # fmt: skip

    def await_ready(self):
        """Waits for READY=1; nothing else that the server tells gives it more time."""
        give_up = time.monotonic() + SECONDS_MAX
        told = ""
        while "READY=1" not in told:
            assert self.process.poll() is None, f"ended with {self.process.returncode}"
            assert time.monotonic() < give_up, f"not ready, but: {told[-1000:]}"
            self.socket.settimeout(1)
            with contextlib.suppress(TimeoutError):
                told += self.socket.recv(4096).decode() + "\n"
        return self

    def stop(self):
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(SECONDS_MAX) == 0, self.log.read_text()[-3000:]
        self.socket.close()


class Cluster:
    def __init__(self):
        free = ["--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"]
        ports = ROOT / "tmp/ports.json"
        ports.unlink(missing_ok=True)
        self.coordinator = Server("embla-coordinator.service", "", *free,
                                  "--admin-listen=127.0.0.1:0", "--port-file=/tmp/ports.json"
                                  ).await_ready()  # fmt: skip
        addresses = json.loads(ports.read_text())
        self.addresses = [f"--coordinator={addresses['listen']}", f"--admin={addresses['admin']}"]
        self.shard = Server("embla-shard@.service", "node1", *free, self.addresses[0]).await_ready()

    def stop(self):
        self.shard.stop()
        self.coordinator.stop()

    def builds(self):
        nodes = json.loads(inside("embla", *self.addresses, "node", "ls", "-o", "json"))
        status = json.loads(inside("embla", *self.addresses, "cluster", "status", "-o", "json"))
        return re.findall(r"\d+\.\d+\.\d+(?=\+)", json.dumps([nodes, status]))

    def train(self):
        return inside("embla-train", *self.addresses, "--wait", "--generate=20000", "--epochs=1",
                      "--trainers=1")  # fmt: skip

    def rows(self):
        """Digests of all tables, as embla verify prints them."""
        found = {}
        embla = ["embla", *self.addresses]
        for table in re.findall(r"(?m)^(model_\w+)", inside(*embla, "table", "ls")):
            verified = json.loads(inside(*embla, "verify", "--table", table, "-o", "json"))
            found[table] = verified["rows"], verified["digest"]
        assert len(found) >= 2, found
        return found


def packages(version):
    return [f"/{version}/{p.name}" for p in sorted((ROOT / version).glob("embla-*.deb"))]


def install(version, *options):
    inside("apt-get", "install", "--yes", "--no-install-recommends", "-qq", *options,
           *packages(version))  # fmt: skip


def main():
    version, following = sys.argv[2:]
    subprocess.run(["mount", "-t", "proc", "proc", str(ROOT / "proc")], check=True)
    # Apt reads packages as a user of its own.
    (ROOT / "tmp").chmod(0o1777)
    # A mirror that drops one connection of many is no fault of the packages.
    (ROOT / "etc/apt/apt.conf.d/retries").write_text('Acquire::Retries "3";\n')
    inside("apt-get", "update", "-qq")

    say(f"install {version}")
    install(version)
    assert inside("id", "-nu", "embla").strip() == "embla"
    assert inside("stat", "-c", "%U %a", "/var/lib/embla").strip() == "embla 750"
    assert inside("embla", "--version").startswith(f"embla {version}+")
    running = [p for p in Path("/proc").glob("[0-9]*/root") if os.path.realpath(p) == str(ROOT)]
    assert not running, "something was started"

    say("train")
    # The conffiles as they are, with the ports of the test.
    cluster = Cluster()
    print(cluster.train()[-200:])
    rows = cluster.rows()
    assert set(cluster.builds()) == {version}

    say(f"upgrade to {following} while the servers run")
    conf = ROOT / "etc/embla/coordinator.conf"
    conf.write_text(conf.read_text() + "heartbeat-ms = 500\n")
    install(following)
    assert set(cluster.builds()) == {version}, "the package has restarted servers"
    cluster.stop()
    assert "heartbeat-ms = 500" in conf.read_text()
    cluster = Cluster()
    assert set(cluster.builds()) == {following}
    assert cluster.rows() == rows
    cluster.stop()

    say(f"back to {version}")
    install(version, "--allow-downgrades")
    cluster = Cluster()
    assert set(cluster.builds()) == {version}
    assert cluster.rows() == rows
    cluster.stop()

    say("remove, purge")
    names = ["embla-server", "embla-cli"]
    inside("apt-get", "remove", "--yes", "-qq", *names)
    assert not list((ROOT / "usr/bin").glob("embla*"))
    assert conf.exists() and (ROOT / "var/lib/embla/nodes/node1").is_dir()
    inside("apt-get", "purge", "--yes", "-qq", *names)
    assert not (ROOT / "etc/embla").exists()
    assert (ROOT / "var/lib/embla/nodes/node1").is_dir(), "rows are gone"
    say("all well")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        for log in sorted((ROOT / "tmp").glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()[-3000:]}")
        raise
