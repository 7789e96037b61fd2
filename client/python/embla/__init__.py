"""Embla for Python: embedding tables that no single machine holds, looked up and trained remotely.

::

    import embla

    with embla.LocalCluster() as cluster, cluster.connect() as client:
        cluster.admin.create_table(embla.TableSpec("clicks", rows=1000, dim=16))
        (rows,) = client.lookup([embla.Lookup("clicks", ids=[1, 2, 3])])

This module needs NumPy only. `embla.torch` has modules for PyTorch, `embla.torchrec` TorchRec's
collections over Embla.

A name is imported when it is used first: NumPy and the native module come with the client, not
with the package.
"""

from typing import TYPE_CHECKING

from embla.errors import (
    AlreadyExistsError,
    CancelledError,
    ClientClosedError,
    ClusterStartError,
    DataLossError,
    DeadlineExceededError,
    EmblaError,
    FailedPreconditionError,
    ForkedClientError,
    IdOutOfRangeError,
    InternalError,
    InvalidArgumentError,
    OverloadedError,
    PermissionDeniedError,
    TableNotFoundError,
    UnavailableError,
)

if TYPE_CHECKING:
    from embla._tls import Tls
    from embla.admin import (
        Admin,
        ClusterStatus,
        CreatedTables,
        Job,
        NodeInfo,
        PlannedMove,
        TableChange,
    )
    from embla.client import (
        Client,
        FeatureSet,
        Gradient,
        Lookup,
        Ticket,
        connect,
        get_default_client,
        set_default_client,
    )
    from embla.local_cluster import LocalCluster
    from embla.spec import (
        SGD,
        Adagrad,
        Adam,
        Constant,
        Default,
        Initializer,
        Normal,
        Optimizer,
        Placement,
        RowwiseAdagrad,
        Sync,
        TableSpec,
        Uniform,
        Zch,
    )
    from embla.table import (
        Eviction,
        IdExplanation,
        SweepReport,
        Table,
        TableInfo,
        TableRows,
        TableSurvey,
        TableSyncReport,
    )

    __version__: str

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Admin",
    "AlreadyExistsError",
    "CancelledError",
    "Client",
    "ClientClosedError",
    "ClusterStartError",
    "ClusterStatus",
    "Constant",
    "CreatedTables",
    "DataLossError",
    "DeadlineExceededError",
    "Default",
    "EmblaError",
    "Eviction",
    "FailedPreconditionError",
    "FeatureSet",
    "ForkedClientError",
    "Gradient",
    "IdExplanation",
    "IdOutOfRangeError",
    "Initializer",
    "InternalError",
    "InvalidArgumentError",
    "Job",
    "LocalCluster",
    "Lookup",
    "NodeInfo",
    "Normal",
    "Optimizer",
    "OverloadedError",
    "PermissionDeniedError",
    "Placement",
    "PlannedMove",
    "RowwiseAdagrad",
    "SweepReport",
    "Sync",
    "Table",
    "TableChange",
    "TableInfo",
    "TableNotFoundError",
    "TableRows",
    "TableSpec",
    "TableSurvey",
    "TableSyncReport",
    "Ticket",
    "Tls",
    "UnavailableError",
    "Uniform",
    "Zch",
    "__version__",
    "connect",
    "get_default_client",
    "set_default_client",
    "version_info",
]

# Asked in this order for a name: the client is needed sooner or later.
_LAZY_MODULES = ("client", "_tls", "spec", "table", "admin", "local_cluster")


def version_info() -> tuple[int, int, int]:
    """Return the version as numbers."""
    from embla import _native

    major, minor, patch = _native.version().split(".")
    return int(major), int(minor), int(patch)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "__version__":
        return ".".join(map(str, version_info()))
    if name in __all__:
        for module_name in _LAZY_MODULES:
            module = import_module(f"embla.{module_name}")
            if name in module.__all__:
                value: object = getattr(module, name)
                globals()[name] = value
                return value
    raise AttributeError(f"module 'embla' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
