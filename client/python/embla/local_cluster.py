"""A whole cluster as children of this process: for tests, notebooks and first steps.

The children end with the block, at the interpreter's exit, and when this process ends in any other
way, SIGKILL included: they are started by `_native.ChildStarter`, so that the kernel sends them
SIGTERM when this process is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embla import _native
from embla.admin import Admin
from embla.client import Client, close_open_clients, connect
from embla.errors import ClientClosedError, ClusterStartError, EmblaError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["LocalCluster", "Process", "find_program"]

_PREFIX = "embla-cluster-"
_LOG_LINES = 20
# Options of the coordinator, and what the addresses that it then serves are called.
_COORDINATOR_PORTS = {"--listen": "listen", "--admin-listen": "admin"}
_STOP_SECONDS = 20.0


def find_program(name: str) -> str:
    """Return the path of a program of the service, of this package's version.

    Looks into the installed package, then ``EMBLA_BIN_DIR``, then ``PATH``. Raises
    `ClusterStartError` where there is none, or the first one found is of another version.
    """
    folders = [str(Path(__file__).parent / "bin"), os.environ.get("EMBLA_BIN_DIR", "")]
    for folder in folders:
        if folder and os.access(path := os.path.join(folder, name), os.X_OK):
            break
    else:
        found = shutil.which(name)
        if found is None:
            raise ClusterStartError(
                f"{name} is neither in the package nor in EMBLA_BIN_DIR nor in PATH: install a "
                "wheel with servers, or set EMBLA_BIN_DIR to a build's bin folder"
            )
        path = os.path.abspath(found)
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    # The first line is NAME VERSION+COMMIT; the package may be of another commit.
    version = shown.stdout.partition("\n")[0].removeprefix(f"{name} ").partition("+")[0]
    if version != _native.version():
        raise ClusterStartError(
            f"{path} is version {version or shown.stderr.strip()!r}, "
            f"the package is version {_native.version()}"
        )
    return path


class Process:
    """A program of a cluster.

    Attributes
    ----------
    name : str
    pid : int
    log_path : Path
        Its output.
    ports : dict
        What it serves, by name, such as ``{"listen": "127.0.0.1:41234"}``.
    """

    def __init__(self, name: str, command: list[str], starter: Any, folder: Path) -> None:
        self.name = name
        self.command = command
        self.log_path = folder / f"{name}.log"
        self._port_file = folder / f"{name}.json"
        self._port_file.unlink(missing_ok=True)
        self.exit_code: int | None = None
        self.ports: dict[str, str] = {}
        self.pid: int = starter.start(
            [*command, "--port-file", str(self._port_file)], str(self.log_path)
        )

    def poll(self) -> int | None:
        """Return the exit code once it has ended, negative for a signal; else None."""
        if self.exit_code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # Other code waited for all children of this process.
                pid, status = self.pid, 0
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, as a crash would, and wait for that."""
        self.send_signal(signal.SIGKILL)
        self.wait(_STOP_SECONDS)

    def wait(self, timeout: float) -> bool:
        """Return whether it ended within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        return True

    def last_lines(self) -> str:
        """Return the end of its log."""
        with contextlib.suppress(OSError):
            lines = self.log_path.read_text(errors="replace").splitlines()
            return "\n".join(lines[-_LOG_LINES:])
        return ""

    def await_ports(self, deadline: float) -> None:
        """Wait until it serves; raises `ClusterStartError` with the end of its log."""
        while True:
            with contextlib.suppress(OSError, ValueError):
                self.ports = json.loads(self._port_file.read_text())
                return
            if (code := self.poll()) is not None:
                raise ClusterStartError(f"{self.name} ended with {code}:\n{self.last_lines()}")
            if time.monotonic() >= deadline:
                raise ClusterStartError(f"{self.name} does not serve:\n{self.last_lines()}")
            time.sleep(0.01)


class LocalCluster:
    """A coordinator and shard servers on free ports of this machine; a context manager.

    ::

        with embla.LocalCluster(nodes=2) as cluster, cluster.connect() as client:
            cluster.admin.create_table(embla.TableSpec("clicks", rows=1000, dim=16))

    Parameters
    ----------
    nodes : int
        Shard servers.
    devices : int
        CPU devices of each.
    data_dir : path, optional
        Where plans, rows and logs are kept, for the next cluster on that folder; None: in a
        temporary folder, which goes with the cluster. Rows survive the death of a shard server
        in both cases.
    start_timeout : float
        Seconds; then `ClusterStartError` shows the last lines of the logs.
    """

    def __init__(
        self,
        nodes: int = 2,
        devices: int = 2,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        start_timeout: float = 30.0,
    ) -> None:
        self._admin: Admin | None = None
        self._coordinator: Process | None = None
        self._start_timeout = start_timeout
        self._owner = os.getpid()
        self._devices = devices
        self._programs = {name: find_program(name) for name in ("embla-coordinator", "embla-shard")}
        self._is_temporary = data_dir is None
        self.data_dir = _temporary_folder() if data_dir is None else Path(data_dir).absolute()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._lock: int | None = _lock(self.data_dir)
        self._starter = _native.ChildStarter()
        self.shards: dict[str, Process] = {}
        _running.add(self)
        try:
            self._start_all(nodes)
        except BaseException:
            self.stop()
            raise

    # ------------------------------------------------------------------ what there is

    @property
    def coordinator(self) -> str:
        """The address for `embla.connect`."""
        return self._ports()["listen"]

    @property
    def admin_address(self) -> str:
        """The address for `embla.Admin`."""
        return self._ports()["admin"]

    @property
    def admin(self) -> Admin:
        """An admin of this cluster, made at the first use and closed with the cluster."""
        address = self.admin_address
        if self._admin is None:
            self._admin = Admin(address)
        return self._admin

    @property
    def coordinator_process(self) -> Process:
        """The coordinator, to kill it or to read its log."""
        if self._coordinator is None:
            raise ClientClosedError("the cluster has stopped")
        return self._coordinator

    def connect(self, **options: Any) -> Client:
        """Return a new client of this cluster; `options` are those of `embla.connect`."""
        return connect(self.coordinator, **options)

    # ------------------------------------------------------------------ verbs

    def start_shard(self, name: str) -> Process:
        """Start the shard server `name`: a new one, or, with its rows, one that has ended."""
        shard = self._spawn_shard(name)
        shard.await_ports(time.monotonic() + self._start_timeout)
        self._await_live(time.monotonic() + self._start_timeout)
        return shard

    def restart_coordinator(self) -> Process:
        """Start the coordinator again, with its plans and at its addresses; end it before.

        Lookups and updates go on meanwhile: clients and nodes need it for changes of the plan.
        """
        ended = self.coordinator_process
        _end([ended], signal.SIGTERM)
        command = list(ended.command)
        for option, port in _COORDINATOR_PORTS.items():
            command[command.index(option) + 1] = ended.ports[port]
        deadline = time.monotonic() + self._start_timeout
        self._coordinator = Process("coordinator", command, self._starter, self.data_dir)
        self._coordinator.await_ports(deadline)
        self._await_live(deadline)
        return self._coordinator

    def stop(self) -> None:
        """End all programs; a second call does nothing, nor does one in a child of fork."""
        _running.discard(self)
        if self._lock is None or os.getpid() != self._owner:
            return
        if self._admin is not None:
            self._admin.close()
        # A directory that goes with the cluster needs no orderly end.
        number = signal.SIGKILL if self._is_temporary else signal.SIGTERM
        # Nodes before the coordinator: they would only complain that it is gone.
        _end([*self.shards.values()], number)
        if self._coordinator is not None:
            _end([self._coordinator], number)
        self._starter.close()
        if self._is_temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ------------------------------------------------------------------ inside

    def _ports(self) -> dict[str, str]:
        if self._coordinator is None or self._lock is None:
            raise ClientClosedError("the cluster has stopped")
        return self._coordinator.ports

    def _start_all(self, nodes: int) -> None:
        deadline = time.monotonic() + self._start_timeout
        loopback = "127.0.0.1:0"
        self._coordinator = Process(
            "coordinator",
            [
                self._programs["embla-coordinator"],
                "--listen", loopback, "--admin-listen", loopback, "--metrics-listen", loopback,
                "--state-dir", str(self.data_dir / "state"),
                # A node that was killed is missed, and found again, soon.
                "--heartbeat-ms", "200", "--dead-after-ms", "2000",
            ],
            self._starter,
            self.data_dir,
        )  # fmt: skip
        self._coordinator.await_ports(deadline)
        for number in range(1, nodes + 1):
            self._spawn_shard(f"node{number}")
        for shard in self.shards.values():
            shard.await_ports(deadline)
        self._await_live(deadline)

    def _spawn_shard(self, name: str) -> Process:
        loopback = "127.0.0.1:0"
        shard = Process(
            name,
            [
                self._programs["embla-shard"],
                "--name", name, "--coordinator", self.coordinator,
                "--listen", loopback, "--metrics-listen", loopback,
                "--devices", f"cpu:{self._devices}",
                "--data-dir", str(self.data_dir / name),
            ],
            self._starter,
            self.data_dir,
        )  # fmt: skip
        self.shards[name] = shard
        return shard

    def _await_live(self, deadline: float) -> None:
        wanted = {name: shard.ports["listen"] for name, shard in self.shards.items()
                  if shard.poll() is None}  # fmt: skip
        while True:
            live = {node.name: node.address for node in self.admin.nodes() if node.live}
            if all(live.get(name) == address for name, address in wanted.items()):
                return
            if time.monotonic() >= deadline:
                logs = "\n".join(f"{shard.name}:\n{shard.last_lines()}"
                                 for shard in self.shards.values())  # fmt: skip
                raise ClusterStartError(f"of nodes {wanted} only {live} are live:\n{logs}")
            time.sleep(0.01)


def _end(processes: list[Process], number: int) -> None:
    for process in processes:
        process.send_signal(number)
    deadline = time.monotonic() + _STOP_SECONDS
    for process in processes:
        if not process.wait(max(deadline - time.monotonic(), 0.0)):
            process.kill()


def _lock(folder: Path) -> int:
    """Return a descriptor that holds the folder, as long as this process or a fork of it lives."""
    descriptor = os.open(folder / "in_use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ClusterStartError(f"another cluster uses {folder}") from None
    return descriptor


def _temporary_folder() -> Path:
    """Return a new folder, after those of clusters that could not delete theirs are deleted."""
    for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, EmblaError):
            if old.stat().st_uid == os.getuid() and (old / "in_use").exists():
                descriptor = _lock(old)
                shutil.rmtree(old, ignore_errors=True)
                os.close(descriptor)
    return Path(tempfile.mkdtemp(prefix=_PREFIX))


# Clusters that run at exit are stopped while the interpreter is whole.
_running: weakref.WeakSet[LocalCluster] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    # Before their clusters: their calls would wait for nodes that are gone.
    close_open_clients()
    for cluster in list(_running):
        cluster.stop()
