"""Table specifications: shape, number format, optimizer, initial values (docs/plan_format.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

__all__ = ["SGD", "Adagrad", "Adam", "Constant", "Default", "Initializer", "Normal", "Optimizer",
           "Placement", "RowwiseAdagrad", "Sync", "TableSpec", "Uniform", "Zch"]  # fmt: skip

WeightDecayMode = Literal["none", "l2", "decoupled"]
Sharding = Literal[
    "auto", "data_parallel", "table_wise", "column_wise", "table_column_wise", "row_wise",
    "table_row_wise", "grid_shard",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Base of the optimizers: one step on every row that an update touches (docs/optimizers.md).

    Attributes
    ----------
    lr : float
        The learning rate.
    weight_decay : float
        With `weight_decay_mode`; the mode ``"none"`` allows 0 only.
    weight_decay_mode : str
        ``"l2"``: added to the gradient. ``"decoupled"``: taken from the weight.
    gradient_clip : float
        Element-wise clamp of gradients, before duplicates are summed; 0: none.
    """

    kind: ClassVar[str] = ""
    # Names of a row's state in checkpoints: its scalars, then its arrays of `dim`.
    row_state: ClassVar[tuple[str, ...]] = ()
    element_state: ClassVar[tuple[str, ...]] = ()
    lr: float = 0.01
    weight_decay: float = 0.0
    weight_decay_mode: WeightDecayMode = "none"
    gradient_clip: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the document's `optimizer`."""
        fields = asdict(self)
        return {"kind": self.kind, "learning_rate": fields.pop("lr"), **fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class SGD(Optimizer):
    """w -= lr * g."""

    kind: ClassVar[str] = "sgd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adagrad(Optimizer):
    """An accumulator of squared gradients per element.

    Attributes
    ----------
    eps : float
        Added to the root of the accumulator.
    initial_accumulator : float
        What it begins with.
    """

    kind: ClassVar[str] = "adagrad"
    element_state: ClassVar[tuple[str, ...]] = ("momentum1",)
    eps: float = 1e-8
    initial_accumulator: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowwiseAdagrad(Optimizer):
    """An accumulator of the mean squared gradient per row.

    Attributes
    ----------
    eps : float
        Added to the root of the accumulator.
    initial_accumulator : float
        What it begins with.
    """

    kind: ClassVar[str] = "rowwise_adagrad"
    row_state: ClassVar[tuple[str, ...]] = ("momentum1",)
    eps: float = 1e-8
    initial_accumulator: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam(Optimizer):
    """Lazy Adam: rows that an update does not touch do not move.

    Attributes
    ----------
    eps : float
        Added to the root of the second moment.
    beta1, beta2 : float
        Decay of the first and of the second moment.
    bias_correction : str
        ``"row"``: by the number of steps of the row; ``"step"``: by the step that the update
        states.
    """

    kind: ClassVar[str] = "adam"
    row_state: ClassVar[tuple[str, ...]] = ("row_steps",)
    element_state: ClassVar[tuple[str, ...]] = ("momentum1", "momentum2")
    eps: float = 1e-8
    beta1: float = 0.9
    beta2: float = 0.999
    bias_correction: Literal["row", "step"] = "row"


@dataclass(frozen=True, slots=True)
class Initializer:
    """Base of the rules for initial weights: functions of (seed, row id, column) only."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document's `init`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Default(Initializer):
    """Uniform in +-sqrt(1 / rows)."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document's `init`."""
        return {"kind": "default"}


@dataclass(frozen=True, slots=True)
class Constant(Initializer):
    """Every weight is `value`."""

    value: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the document's `init`."""
        return {"kind": "constant", "a": self.value, "b": 0.0}


@dataclass(frozen=True, slots=True)
class Uniform(Initializer):
    """Uniform in [`low`, `high`)."""

    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """Return the document's `init`."""
        return {"kind": "uniform", "a": self.low, "b": self.high}


@dataclass(frozen=True, slots=True)
class Normal(Initializer):
    """Normally distributed, with the mean `mean` and the standard deviation `std`."""

    mean: float = 0.0
    std: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return the document's `init`."""
        return {"kind": "normal", "a": self.mean, "b": self.std}


@dataclass(frozen=True, slots=True, kw_only=True)
class Zch:
    """Makes a table whose ids are any 64-bit numbers (docs/zch.md); fixed at creation.

    `rows` of the table is then how many ids can have a row. None: as the service says.

    Attributes
    ----------
    buckets : int
        1 to 65536; the units that the table is cut by, and moved in.
    policy : str
        Which id loses its row when another needs one: the one touched least recently (``"lru"``),
        least often (``"lfu"``), least often for its age (``"distance_lfu"``), or whose time is
        over (``"ttl"``).
    distance_exponent : int
        Of ``"distance_lfu"``: the power of the age.
    ttl_steps : int
        Of ``"ttl"``: how many training steps an id lives after a touch.
    evict_unexpired : bool
        Of ``"ttl"``: whether the id that expires first gives way where none has expired.
    admission : str
        Which new ids get a row: all, those seen `admission_count` times, or each with
        `admission_probability`.
    admission_count : int
    admission_probability : float
        0 to 1.
    reserved_lanes : int
        0 to 63 rows of each 64 that ids without a row of their own share.
    unseen : str
        What a lookup gives for an id without a row: ``"initial"`` its initial row, ``"default"``
        the row that it shares, ``"zero"`` zeros, ``"error"`` `IdOutOfRangeError`.
    eviction_buffer_bytes : int
        How much of its evicted rows a node keeps for `Table.evictions`.
    """

    buckets: int | None = None
    policy: Literal["lru", "lfu", "distance_lfu", "ttl"] = "lru"
    distance_exponent: Literal[1, 2] | None = None
    ttl_steps: int | None = None
    evict_unexpired: bool | None = None
    admission: Literal["all", "count", "probability"] = "all"
    admission_count: int | None = None
    admission_probability: float | None = None
    reserved_lanes: int | None = None
    unseen: Literal["initial", "default", "zero", "error"] | None = None
    eviction_buffer_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the document's `zch`."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Makes a table that steps once per training step, with the sum over all ranks.

    docs/synchronous_steps.md. None: as the service says.

    Attributes
    ----------
    step_timeout_ms : int, optional
        How long a step waits for a rank that is silent.
    on_silence : str, optional
        What then: ``"close"`` completes the step without that rank, which has to join again;
        ``"fail"`` ends training for all until ranks join again.
    steps_ahead_max : int, optional
        How many steps a rank may be ahead of the others.
    """

    step_timeout_ms: int | None = None
    on_silence: Literal["close", "fail"] | None = None
    steps_ahead_max: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the document's `sync`."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table to create.

    Attributes
    ----------
    name : str
        1 to 128 of ``A-Z a-z 0-9 . _ -``, no leading dot.
    rows : int
        Ids are 0 to rows - 1; of a ZCH table, how many ids can have a row.
    dim : int
        Columns, 1 to 2048.
    dtype : str
        Number format of the weights on the nodes; clients see float32.
    optimizer : Optimizer
    init : Initializer
    seed : int
        Of initial values and of stochastic rounding.
    zch : Zch, optional
        Makes a ZCH table.
    sync : Sync or bool
        Makes a table with synchronous steps; True: as `Sync()`.
    row_granules : int
        How many ranges of rows the table can be cut into; 0: at most 4096.
    column_granule_width : int
        Columns are cut at multiples of it; 0: 4.
    durability : str
        What an acknowledged update survives: ``"queued"`` a clean stop, ``"written"`` the death
        of the process, ``"synced"`` the loss of power; ``"node"``: what the nodes say.
    callers : sequence of str
        Trainers and readers that may use the table, by the names in their certificates; empty: all.
    rounding, bounds, nan_policy, replica_groups, sync_every_steps, lookups_per_sample
        As docs/plan_format.md says.
    """

    name: str
    rows: int
    dim: int
    dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    optimizer: Optimizer = field(default_factory=RowwiseAdagrad)
    init: Initializer = field(default_factory=Default)
    seed: int = 0
    zch: Zch | None = None
    rounding: Literal["nearest", "stochastic"] = "nearest"
    bounds: Literal["error", "ignore"] = "error"
    nan_policy: Literal["reject", "allow"] = "reject"
    row_granules: int = 0
    column_granule_width: int = 0
    replica_groups: int = 1
    sync_every_steps: int = 0
    lookups_per_sample: float = 1.0
    sync: Sync | bool = False
    durability: Literal["node", "queued", "written", "synced"] = "node"
    callers: Sequence[str] = ()

    def to_json(self) -> str:
        """Return the document that the service takes."""
        document: dict[str, Any] = {
            "name": self.name,
            "rows": self.rows,
            "dim": self.dim,
            "dtype": self.dtype,
            "row_granules": self.row_granules,
            "column_granule_width": self.column_granule_width,
            "optimizer": self.optimizer.to_dict(),
            "init": self.init.to_dict(),
            "seed": self.seed,
            "rounding": self.rounding,
            "bounds": self.bounds,
            "nan_policy": self.nan_policy,
            "replica_groups": self.replica_groups,
            "sync_every_steps": self.sync_every_steps,
            "lookups_per_sample": self.lookups_per_sample,
        }
        # Left out where it says nothing: older coordinators take such tables.
        if self.durability != "node":
            document["durability"] = self.durability
        if self.callers:
            document["callers"] = list(self.callers)
        if self.zch is not None:
            document["zch"] = self.zch.to_dict()
        if self.sync is not False:
            document["sync"] = (Sync() if self.sync is True else self.sync).to_dict()
        return json.dumps(document)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a table's slices go (docs/plan_format.md); empty sequences mean all.

    Attributes
    ----------
    sharding : str
        The sharding type; ``"auto"``: the planner chooses.
    nodes : sequence of str
        Names of the nodes that may have slices.
    devices : sequence of int
        The devices of each node that may.
    min_partition : int
        The narrowest block of columns; 0: 128.
    targets : sequence of str
        Exactly where each block of columns goes: nodes ``"n0"`` or devices ``"n0:1"``.
    """

    sharding: Sharding = "auto"
    nodes: Sequence[str] = ()
    devices: Sequence[int] = ()
    min_partition: int = 0
    targets: Sequence[str] = ()

    def to_json(self) -> str:
        """Return the document that the service takes."""
        document: dict[str, Any] = {"sharding": self.sharding}
        for key in ("nodes", "devices", "targets"):
            if values := list(getattr(self, key)):
                document[key] = values
        if self.min_partition:
            document["min_partition"] = self.min_partition
        return json.dumps(document)
