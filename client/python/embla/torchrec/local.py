"""Collections of the service as modules that need no service."""

from __future__ import annotations

import copy
from typing import Any

import torchrec
from torch import nn

from embla.torchrec.collection import RemoteCollection
from embla.torchrec.managed_collision import _ManagedCollision
from embla.torchrec.modules import EmbeddingBagCollection, EmbeddingCollection
from embla.torchrec.rows import read_all


def to_local(module: nn.Module) -> nn.Module:
    """Return a copy of ``module`` with TorchRec's collections, filled with the service's rows.

    For inference: TorchRec's quantisation, ``torch.export`` and AOTInductor take it from there.
    All rows are read, so they have to fit into memory. Updates that are on their way are awaited.

    Raises
    ------
    ValueError
        A table takes any 64-bit id, so that its rows have no numbers.
    """
    if isinstance(module, _ManagedCollision):
        raise ValueError("tables for any 64-bit id have no local counterpart")
    if isinstance(module, RemoteCollection):
        return _local(module)
    remote = {
        name: child for name, child in module.named_modules() if isinstance(child, RemoteCollection)
    }
    # A copy of a remote collection costs nothing, and is replaced.
    local = copy.deepcopy(module)
    for name, child in remote.items():
        parent, _, attribute = name.rpartition(".")
        if isinstance(module.get_submodule(parent), _ManagedCollision):
            raise ValueError(f"{parent}: tables for any 64-bit id have no local counterpart")
        setattr(local.get_submodule(parent), attribute, _local(child))
    return local


def _local(module: RemoteCollection) -> nn.Module:
    module.flush()
    if isinstance(module, EmbeddingBagCollection):
        bags: nn.Module = torchrec.EmbeddingBagCollection(
            module.embedding_bag_configs(), module.is_weighted(), module.device
        )
        _fill(bags.get_submodule("embedding_bags"), module)
        return bags
    assert isinstance(module, EmbeddingCollection)
    rows: nn.Module = torchrec.EmbeddingCollection(
        module.embedding_configs(), module.device, module.need_indices()
    )
    _fill(rows.get_submodule("embeddings"), module)
    return rows


def _fill(tables: nn.Module, module: RemoteCollection) -> None:
    for name, table in tables.named_children():
        if module.is_zch(name):
            raise ValueError(f"table {name} takes any 64-bit id: it has no local counterpart")
        weight: Any = table.weight
        read_all(module.site.client, module.service_name(name), weight.data)
