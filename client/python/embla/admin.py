"""Administration: tables, plans, nodes, and jobs that move rows while training goes on."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from embla import _native
from embla._tls import Tls, tls_from_environment
from embla.errors import DeadlineExceededError, FailedPreconditionError, InvalidArgumentError
from embla.spec import Placement, Sharding, TableSpec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

__all__ = [
    "Admin",
    "ClusterStatus",
    "CreatedTables",
    "Job",
    "NodeInfo",
    "PlannedMove",
    "TableChange",
]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster as its coordinator sees it.

    Attributes
    ----------
    cluster_id : str
    plan_version : int
        Of the current plan; every change makes a new one.
    nodes_live, nodes_total : int
    tables : int
        How many there are.
    started : float or None
        When the coordinator began, in seconds since the epoch.
    version : str
        Of the coordinator's program.
    """

    cluster_id: str
    plan_version: int
    nodes_live: int
    nodes_total: int
    tables: int
    started: float | None
    version: str


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A shard server.

    Attributes
    ----------
    id : int
    name : str
    address : str
        ``host:port`` of its data service.
    devices : list of dict
        As docs/plan_format.md says.
    live : bool
        Whether the coordinator hears of it.
    drained : bool
        Whether it gets no slices.
    plan_version : int
        Of the plan that it serves.
    failure : str
        What keeps it from the newest plan; empty: nothing.
    device_used_bytes : list of int
        Of each device.
    last_heartbeat : float or None
        When it was heard of last, in seconds since the epoch.
    """

    id: int
    name: str
    address: str
    devices: list[dict[str, Any]]
    live: bool
    drained: bool
    plan_version: int
    failure: str
    device_used_bytes: list[int]
    last_heartbeat: float | None


@dataclass(frozen=True, slots=True)
class TableChange:
    """The result of creating or changing a table.

    Attributes
    ----------
    plan : dict
        The table's plan, as docs/plan_format.md says.
    plan_version : int
        The first plan that has it; 0 after `Admin.explain`.
    left_out : list of str
        Nodes that are away and get no slices, and why.
    """

    plan: dict[str, Any]
    plan_version: int
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class CreatedTables:
    """The result of creating tables together.

    Attributes
    ----------
    plan_version : int
        The first plan that has them all.
    existed : list of str
        Names of tables that were there before.
    left_out : list of str
        Nodes that are away and get no slices, and why.
    """

    plan_version: int
    existed: list[str]
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A run of units of one table with one way to go.

    Attributes
    ----------
    table : str
    rows, columns : tuple of int
        What moves: from, and up to but without.
    from_node, to_node : str
    from_device, to_device : int
    bytes : int
        Weights and optimizer state.
    """

    table: str
    rows: tuple[int, int]
    columns: tuple[int, int]
    from_node: str
    from_device: int
    to_node: str
    to_device: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job that moves units, the pieces of tables that go from device to device.

    Attributes
    ----------
    id : int
        0: a dry run, or there is nothing to move.
    description : str
        What was asked for.
    state : str
    error : str
        Why it failed.
    waits_for : str
        What keeps it from getting on.
    awaited_node : str
        The node that has to act; empty: no certain one.
    units_total, units_moved : int
    units_open : int
        Are being copied, or wait for the next plan.
    units_handed_over : int
        Of these, those whose new owner serves them already.
    bytes_total, bytes_moved : int
    started, ended : float or None
        Seconds since the epoch.
    pause_p50_ms, pause_p99_ms, pause_max_ms : float
        How long a unit was not updated, in milliseconds.
    moves : list of PlannedMove
        Empty in a list of jobs.
    """

    id: int
    description: str
    state: Literal["running", "paused", "cancelling", "done", "cancelled", "failed", "queued"]
    error: str
    waits_for: str
    awaited_node: str
    units_total: int
    units_moved: int
    units_open: int
    units_handed_over: int
    bytes_total: int
    bytes_moved: int
    started: float | None
    ended: float | None
    pause_p50_ms: float
    pause_p99_ms: float
    pause_max_ms: float
    moves: list[PlannedMove]

    @property
    def is_over(self) -> bool:
        """Whether it does nothing any more."""
        return self.state in ("done", "cancelled", "failed")


def _time(unix_ms: int) -> float | None:
    """Return seconds since the epoch; None for the epoch itself: not yet."""
    return unix_ms / 1e3 if unix_ms else None


def _known(kind: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that `kind` has by the same name."""
    return {name: fields[name] for name in kind.__slots__ if name in fields}


def _move(fields: dict[str, Any]) -> PlannedMove:
    return PlannedMove(
        **_known(PlannedMove, fields),
        rows=(fields["row_begin"], fields["row_end"]),
        columns=(fields["column_begin"], fields["column_end"]),
    )


def _job(fields: dict[str, Any]) -> Job:
    return Job(
        **{
            **_known(Job, fields),
            "state": fields["state"].removeprefix("JOB_STATE_").lower(),
            "started": _time(fields["started_unix_ms"]),
            "ended": _time(fields["ended_unix_ms"]),
            "moves": [_move(move) for move in fields["moves"]],
        }
    )


def _change(fields: dict[str, Any]) -> TableChange:
    return TableChange(
        json.loads(fields["table_plan_json"] or "{}"), fields["plan_version"], fields["left_out"]
    )


class Admin(_native.Admin):
    """A connection to a coordinator's admin port: ``embla.Admin("host:7071")``.

    Parameters
    ----------
    address : str, optional
        ``host:port``, of several coordinators all, with commas in between; None: the environment
        variable ``EMBLA_ADMIN``.
    timeout : float
        Seconds that a call may take, and that this waits for a coordinator that does not answer.
    waits_for_coordinator : bool
        False: fail at once where nobody listens.
    tls : Tls, optional
        The certificates of the connection; None: as `connect` takes them from the environment.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout: float = 60.0,
        waits_for_coordinator: bool = True,
        tls: Tls | None = None,
    ) -> None:
        if address is None:
            address = os.environ.get("EMBLA_ADMIN", "")
            if not address:
                raise InvalidArgumentError("no address is given, and EMBLA_ADMIN is not set")
        super().__init__(
            address,
            timeout=timeout,
            waits_for_coordinator=waits_for_coordinator,
            tls=tls if tls is not None else tls_from_environment(),
        )
        self.address = address

    # ------------------------------------------------------------------ tables

    def create_table(
        self, spec: TableSpec, placement: Placement | Sharding = "auto"
    ) -> TableChange:
        """Create the table `spec`, and wait until its nodes serve it.

        `placement`: a `Placement`, or just its sharding type. Raises `AlreadyExistsError`.
        """
        return _change(self._change("CreateTable", **_request(spec, placement)))

    def create_tables(
        self,
        tables: Iterable[TableSpec | tuple[TableSpec, Placement | Sharding]],
        *,
        if_not_exists: bool = False,
    ) -> CreatedTables:
        """Create all the tables by one change of the plan, or none, and wait for their nodes.

        Tables whose placement is ``"auto"`` are placed together, which balances better than one by
        one.

        Parameters
        ----------
        tables : iterable of TableSpec, or of pairs of a TableSpec and its placement
            A table without a placement has ``"auto"``.
        if_not_exists : bool
            Tables that exist as they are asked for stay as they are. Where one differs, nothing is
            created, and the `FailedPreconditionError` names every difference.
        """
        pairs: list[tuple[TableSpec, Placement | Sharding]] = [
            table if isinstance(table, tuple) else (table, "auto") for table in tables
        ]
        requests = [_request(spec, placement) for spec, placement in pairs]
        fields = self._change("CreateTables", tables=requests, if_not_exists=if_not_exists)
        return CreatedTables(**fields)

    def explain(self, spec: TableSpec, placement: Placement | Sharding = "auto") -> TableChange:
        """Return how `create_table` would cut the table, without creating it."""
        return _change(self._read("PlanTable", **_request(spec, placement)))

    def set_table(self, name: str, **values: object) -> TableChange:
        """Change hyper-parameters while training goes on: ``set_table("t", learning_rate=0.1)``.

        Each node uses them from the moment that it serves `TableChange.plan_version` on; `nodes`
        says which do.

        Raises `TableNotFoundError` where there is no table `name`, `InvalidArgumentError` for a
        value that cannot change.
        """
        texts = {key: _text(value) for key, value in values.items()}
        return _change(self._change("SetTable", name=name, values=texts))

    def drop_table(self, name: str) -> int:
        """Drop the table `name` and its rows; returns the new plan version."""
        version: int = self._change("DropTable", name=name)["plan_version"]
        return version

    def plan(self) -> dict[str, Any]:
        """Return the current plan, as docs/plan_format.md says."""
        plan: dict[str, Any] = json.loads(self._read("GetPlan")["json"])
        return plan

    # ------------------------------------------------------------------ nodes and jobs

    def status(self) -> ClusterStatus:
        """Return what the coordinator knows of the cluster."""
        fields = self._read("GetClusterStatus")
        started = _time(fields["started_unix_ms"])
        return ClusterStatus(**_known(ClusterStatus, fields), started=started)

    def nodes(self) -> list[NodeInfo]:
        """Return all nodes, those that are down among them."""
        return [_node(fields) for fields in self._read("ListNodes")["nodes"]]

    def jobs(self) -> list[Job]:
        """Return the jobs that are kept, the newest first."""
        return [_job(fields) for fields in self._read("ListJobs")["jobs"]]

    def job(self, id: int) -> Job:
        """Return the job `id`, with its moves."""
        return _job(self._read("GetJob", id=id)["job"])

    def reshard(
        self, table: str, shards: int, *, bytes_per_second: int = 0, dry_run: bool = False
    ) -> Job:
        """Spread a table over `shards` devices, while it is trained.

        Parameters
        ----------
        table : str
        shards : int
        bytes_per_second : int
            How fast rows are copied at most; 0: as fast as may be.
        dry_run : bool
            Only say what would move.
        """
        goal = {"reshard": {"table": table, "shards": shards}}
        return self._start(goal, bytes_per_second, dry_run)

    def drain(self, node: str, *, bytes_per_second: int = 0, dry_run: bool = False) -> Job:
        """Move everything off a node; it gets no new slices."""
        return self._start({"drain": {"node": node}}, bytes_per_second, dry_run)

    def undrain(self, node: str) -> Job:
        """Let a node have slices again."""
        return self._start({"undrain_node": node})

    def rebalance(self, *, bytes_per_second: int = 0, dry_run: bool = False) -> Job:
        """Even out what the devices hold."""
        return self._start({"rebalance": {}}, bytes_per_second, dry_run)

    def pause(self, job: int | Job) -> Job:
        """Let open moves end and begin none."""
        return self._control(job, "ACTION_PAUSE")

    def resume(self, job: int | Job) -> Job:
        """Go on with a job that was paused."""
        return self._control(job, "ACTION_RESUME")

    def cancel(self, job: int | Job) -> Job:
        """Abort open moves; what has moved stays."""
        return self._control(job, "ACTION_CANCEL")

    def wait(self, job: int | Job, timeout: float | None = None) -> Job:
        """Wait until a job is done and return it.

        Raises `FailedPreconditionError` where it failed or was cancelled, `DeadlineExceededError`
        after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            state = job if isinstance(job, Job) and job.is_over else self.job(_id(job))
            if state.state == "done":
                return state
            if state.is_over:
                raise FailedPreconditionError(f"job {state.id} {state.state}: {state.error}")
            if deadline is not None and time.monotonic() >= deadline:
                raise DeadlineExceededError(f"job {state.id} is {state.state} after {timeout} s")
            time.sleep(0.05)

    def _start(self, goal: dict[str, Any], bytes_per_second: int = 0, dry_run: bool = False) -> Job:
        call = self._read if dry_run else self._change
        limits = {"bytes_per_second": bytes_per_second, "dry_run": dry_run}
        return _job(call("StartJob", **goal, **limits)["job"])

    def _control(self, job: int | Job, action: str) -> Job:
        return _job(self._change("ControlJob", id=_id(job), action=action)["job"])

    # Both call a method of AdminService by its name, with the request's fields, and return the
    # reply's. When a change does not come back, nobody knows whether it was made.

    def _read(self, method: str, **request: object) -> dict[str, Any]:
        return self._call(method, json.dumps(request), changes=False)

    def _change(self, method: str, **request: object) -> dict[str, Any]:
        return self._call(method, json.dumps(request), changes=True)

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<embla.Admin of {self.address}>"


def _node(fields: dict[str, Any]) -> NodeInfo:
    heartbeat = _time(fields["last_heartbeat_unix_ms"])
    described = json.loads(fields["node_json"])
    return NodeInfo(**described, **_known(NodeInfo, fields), last_heartbeat=heartbeat)


def _request(spec: TableSpec, placement: Placement | Sharding) -> dict[str, str]:
    if not isinstance(placement, Placement):
        placement = Placement(placement)
    return {"table_json": spec.to_json(), "placement_json": placement.to_json()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _id(job: int | Job) -> int:
    return job.id if isinstance(job, Job) else job
