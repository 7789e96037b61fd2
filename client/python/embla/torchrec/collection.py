"""The common base of EmbeddingBagCollection and EmbeddingCollection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torchrec.modules.embedding_configs import BaseEmbeddingConfig
from torchrec.optim.fused import EmptyFusedOptimizer
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from torchrec.sparse.tensor_dict import maybe_td_to_kjt
from typing_extensions import Self

import embla
from embla.torch import EmbeddingBagSet, Feature, Prefetch, Site, rank_of_process
from embla.torch.connection import Connection
from embla.torchrec.configs import dtype_of, refuse_unsupported, to_table_spec
from embla.torchrec.fused_optimizer import EmblaFusedOptimizer
from embla.torchrec.optimizers import to_service_optimizer
from embla.torchrec.rows import write_all
from embla.torchrec.stub import RemoteTable, TableStub
from embla.torchrec.table_creator import TableCreator

IfExists = Literal["attach", "error", "recreate"]


class RemoteCollection(nn.Module):
    """Tables of the service behind a KeyedJaggedTensor.

    The tables are created or attached to by :meth:`connect`, which the first forward pass calls:
    so ``_apply_optimizer_in_backward`` comes between construction and use, as in TorchRec.
    """

    def __init__(
        self,
        configs: Sequence[BaseEmbeddingConfig],
        stubs_name: str,
        device: torch.device | None,
        *,
        client: embla.Client | None = None,
        admin: embla.Admin | str | None = None,
        sharding: Mapping[str, str] | None = None,
        if_exists: IfExists = "attach",
        update_hyper_parameters: bool = False,
        table_prefix: str = "",
        zch: Mapping[str, embla.Zch] | None = None,
        sync: embla.Sync | bool = False,
        **options: Any,
    ) -> None:
        """Take over the tables' configurations.

        Parameters
        ----------
        configs
            The tables; one without features has one of its own name.
        stubs_name
            TorchRec's name of the dict that has a module with a ``weight`` per table.
        device
            Where rows arrive.
        client
            None: :func:`embla.get_default_client` at the first use.
        admin
            Creates missing tables; or its address; None: by the environment variable
            ``EMBLA_ADMIN``.
        sharding
            Sharding types by table; ``"auto"`` where none is given.
        if_exists
            Of a table that exists: ``"attach"`` uses its rows if its rows, dim, dtype and
            optimizer agree; ``"error"`` raises; ``"recreate"`` drops it and its rows.
        update_hyper_parameters
            Whether attaching sets the table's hyper-parameters to what is declared here.
        table_prefix
            What the service's names of the tables begin with.
        zch
            Tables that take any 64-bit id.
        sync
            Whether the tables step once per training step of all trainers, with the sum over them
            (docs/synchronous_steps.md); all collections of a model then run in every step of
            every trainer. ``client`` has a rank (``embla.connect(**rank_of_process())``); None:
            the default client is made so.
        **options
            The fields of :class:`embla.torch.CallOptions`.
        """
        super().__init__()
        self._configs = list(configs)
        self._client = client
        self._admin = admin
        self._sharding = dict(sharding or {})
        self._if_exists = if_exists
        self._update_hyper_parameters = update_hyper_parameters
        self._prefix = table_prefix
        self._zch = dict(zch or {})
        self._sync = sync
        self._first_rows: dict[str, Tensor] = {}
        # Learning rates of the tables with an optimizer, by table.
        self._rates: dict[str, float] = {}
        self._options = options
        self._rows: EmbeddingBagSet | None = None
        self._fused_optimizer: EmblaFusedOptimizer | None = None
        self._device = torch.device("cpu" if device is None or _is_meta(device) else device)
        self._stubs_name = stubs_name
        self.add_module(stubs_name, self._make_stubs())
        self._feature_names = [name for config in configs for name in config.feature_names]

    def connect(self) -> None:
        """Create the tables that do not exist, and attaches to those that do; once.

        Call it before ``torch.compile``, which cannot trace it.

        Raises
        ------
        ValueError
            A table that exists differs from its configuration; the message names what differs. Or
            a table does not exist and no optimizer was applied to it.
        """
        if self._rows is not None:
            return
        client = self._client or default_client(self._sync)
        optimizers = {c.name: self._optimizer_of(c) for c in self._configs}
        creator = TableCreator(client, self._admin, self._if_exists, self._update_hyper_parameters)
        created = creator.ensure([self._wanted(c, optimizers[c.name]) for c in self._configs])
        for table, rows in self._first_rows.items():
            if self.service_name(table) in created:
                write_all(client, self.service_name(table), rows)
        self._first_rows.clear()
        features = [
            Feature(self.service_name(config.name), self._pooling_of(config), config.embedding_dim)
            for config in self._configs
            for _ in config.feature_names
        ]
        self._rows = EmbeddingBagSet(client, features, **self._options).to(self._device)
        self._rates = {name: o.lr for name, o in optimizers.items() if o is not None}
        self._declare_optimizers()

    @property
    def fused_optimizer(self) -> EmblaFusedOptimizer:
        """The tables' learning rates, for schedulers and ``CombinedOptimizer``."""
        self.connect()
        if self._fused_optimizer is None:
            raise RuntimeError("no optimizer was applied to the tables: they learn as they did")
        return self._fused_optimizer

    @property
    def site(self) -> Site:
        """The module's place at the service: its updates and prefetches."""
        return self._connected().site

    @property
    def device(self) -> torch.device:
        """Where rows arrive."""
        return self._device

    def prefetch(self, features: KeyedJaggedTensor) -> Prefetch:
        """Start the lookup of a later ``forward`` with these features.

        It sees every update whose backward pass ran before this call.
        """
        return self._connected().prefetch(**self._arguments(self._select(features)))

    def flush(self) -> None:
        """Wait until every update of the client is acknowledged, and raise what failed."""
        self._connected().flush()

    def plan(self) -> dict[str, Any]:
        """Return the sharding type of each table, as the service has it."""
        tables = {info.name: info.sharding for info in self._connected().site.client.tables()}
        return {config.name: tables[self.service_name(config.name)] for config in self._configs}

    def declare_zch(self, zch: Mapping[str, embla.Zch]) -> None:
        """Make tables take any 64-bit id; before the first use."""
        self._require_unused("declare_zch")
        self._zch |= zch

    def begin_with(self, table: str, rows: Tensor) -> None:
        """Give a table its first rows, unless it exists already; before the first use."""
        self._require_unused("begin_with")
        self._first_rows[table] = rows

    def service_name(self, table: str) -> str:
        """Return the service's name of a table."""
        return self._prefix + table

    def remote_tables(self) -> list[tuple[str, str, str]]:
        """Return each table's name, the name of its weights, and its name in the service."""
        return [
            (c.name, f"{self._stubs_name}.{c.name}.weight", self.service_name(c.name))
            for c in self._configs
        ]

    def is_zch(self, table: str) -> bool:
        """Tell whether a table takes any 64-bit id."""
        name = self.service_name(table)
        return any(i.name == name and i.zch for i in self._connected().site.client.tables())

    def reset_parameters(self) -> None:
        """Do nothing: a table's first rows are a function of its seed (docs/optimizers.md)."""

    def _pooling_of(self, config: BaseEmbeddingConfig) -> Any:
        raise NotImplementedError

    def _lookup(self, features: KeyedJaggedTensor) -> tuple[KeyedJaggedTensor, Tensor]:
        """Return the module's own features, in the order of its tables, and their rows."""
        selected = self._select(features)
        return selected, self._connected()(**self._arguments(selected))

    def _select(self, features: KeyedJaggedTensor) -> KeyedJaggedTensor:
        features = maybe_td_to_kjt(features, None)
        keys = features.keys()
        if keys == self._feature_names:
            return features
        positions = {key: position for position, key in enumerate(keys)}
        return features.permute([positions[name] for name in self._feature_names])

    def _arguments(self, features: KeyedJaggedTensor) -> dict[str, Any]:
        return {
            "values": features.values(),
            "lengths": features.lengths(),
            "weights": features.weights() if self._has_weights() else None,
            "batch_sizes": (
                features.stride_per_key() if features.variable_stride_per_key() else None
            ),
        }

    def _has_weights(self) -> bool:
        return False

    def _require_unused(self, call: str) -> None:
        if self._rows is not None:
            raise RuntimeError(f"{call} comes before the first use of the collection")

    def _connected(self) -> EmbeddingBagSet:
        if self._rows is None:
            if torch.compiler.is_compiling():
                raise RuntimeError("call connect() of the collection before torch.compile")
            self.connect()
        assert self._rows is not None
        return self._rows

    def _make_stubs(self) -> nn.ModuleDict:
        stubs = nn.ModuleDict()
        for config in self._configs:
            if config.name in stubs:
                raise ValueError(f"Duplicate table name {config.name}")
            refuse_unsupported(config)
            if not config.feature_names:
                config.feature_names = [config.name]
            stubs[config.name] = TableStub(config)
        return stubs

    def _optimizer_of(self, config: BaseEmbeddingConfig) -> embla.Optimizer | None:
        weight = self._stub(config).weight
        classes = getattr(weight, "_optimizer_classes", [])
        kwargs = getattr(weight, "_optimizer_kwargs", [])
        if not classes:
            return None
        if len(classes) > 1:
            names = ", ".join(c.__name__ for c in classes)
            raise ValueError(f"table {config.name} has several optimizers: {names}")
        return to_service_optimizer(classes[0], kwargs[0])

    def _stub(self, config: BaseEmbeddingConfig) -> TableStub:
        stub = getattr(self, self._stubs_name)[config.name]
        assert isinstance(stub, TableStub)
        return stub

    def _wanted(
        self, config: BaseEmbeddingConfig, optimizer: embla.Optimizer | None
    ) -> tuple[embla.TableSpec, bool, str]:
        """Return a table, whether its optimizer was declared, and its sharding type."""
        spec = to_table_spec(
            config,
            optimizer or embla.SGD(),
            name=self.service_name(config.name),
            zch=self._zch.get(config.name),
            sync=self._sync,
        )
        return spec, optimizer is not None, self._sharding.get(config.name, "auto")

    def _declare_optimizers(self) -> None:
        """Make the stubs and the fused optimizer say what the service does."""
        connected = self._connected()
        groups = {}
        for config in self._configs:
            stub = self._stub(config)
            client = connected.site.client
            stub.describe(self._remote_table(config, client), client)
            # TorchRec's filters see that these parameters step in backward passes.
            weight: Any = stub.weight
            weight._in_backward_optimizers = [EmptyFusedOptimizer()]
            if config.name in self._rates:
                key = f"{self._stubs_name}.{config.name}.weight"
                table = self.service_name(config.name)
                groups[table] = (key, stub.weight, self._rates[config.name])
        if len(groups) == len(self._configs):
            self._fused_optimizer = EmblaFusedOptimizer(connected.site, groups)

    def _remote_table(self, config: BaseEmbeddingConfig, client: embla.Client) -> RemoteTable:
        return RemoteTable(
            self.service_name(config.name),
            config.num_embeddings,
            config.embedding_dim,
            dtype_of(config),
            client.coordinator,
        )

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_client"] = None if self._client is None else Connection(self._client)
        if self._admin is not None and not isinstance(self._admin, str):
            state["_admin"] = self._admin.address
        optimizer = state.pop("_fused_optimizer")
        if optimizer is not None:
            state["_rates"] = {
                config.name: group["lr"]
                for config, group in zip(self._configs, optimizer.param_groups, strict=True)
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        connection = state.pop("_client")
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._client = None if connection is None else connection.client
        self._fused_optimizer = None
        if self._rows is not None:
            self._declare_optimizers()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(torch.empty(0, device=self._device)).device
        if not _is_meta(device):
            self._device = device
        return self


def default_client(sync: embla.Sync | bool) -> embla.Client:
    """Return the default client; with ``sync``, a new one has the rank of this process."""
    return embla.get_default_client(**(rank_of_process() if sync is not False else {}))


def _is_meta(device: torch.device | str) -> bool:
    return torch.device(device).type == "meta"
