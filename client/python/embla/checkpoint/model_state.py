"""The state of a model with remote tables, under the names that TorchRec gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from embla.checkpoint.remote_tensor import RemoteTensor, share_of_rows, state_of, weights_of
from embla.torch import EmbeddingBagSet, RemoteModule, Site, flush

MATERIALIZE_BYTES_MAX = 1 << 30

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TableUse:
    """A table of a model.

    Attributes
    ----------
    fqn
        The name of its weights in the model's state.
    name
        The table's name in the model.
    site
        The module's place at the service.
    table
        The table's name in the service.
    """

    fqn: str
    name: str
    site: Site
    table: str

    @property
    def is_zch(self) -> bool:
        """Whether the table takes any 64-bit id."""
        return self.site.client.table(self.table).info.zch

    def weights(self, ids: Ids | None = None) -> RemoteTensor:
        """Return the weights, of a ZCH table those of ``ids``."""
        return weights_of(self.site.client, self.table, ids)

    def state(self, ids: Ids | None = None) -> dict[str, RemoteTensor]:
        """Return the optimizer state by TorchRec's names: ``<table>.momentum1``."""
        parts = state_of(self.site.client, self.table, ids)
        return {f"{self.name}.{part}": tensor for part, tensor in parts.items()}


def tables_of(model: nn.Module) -> list[TableUse]:
    """Return the tables of ``model``; connects collections that are not.

    A collection's weights are named as TorchRec names them, those of EmbeddingBag and Embedding as
    torch does: ``<module>.weight``; those of an EmbeddingBagSet ``<module>.<table>.weight``.
    """
    return list(_tables_of(model, ""))


def resident_ids(model: nn.Module) -> dict[str, Ids]:
    """Return the ids that have rows in each ZCH table of ``model``, by the weights' name.

    With a process group every rank calls it, and has the ids that the first one found.
    """
    ids: dict[str, Ids] = {}
    if not dist.is_initialized() or dist.get_rank() == 0:
        ids = {use.fqn: _scan_ids(use) for use in tables_of(model) if use.is_zch}
    if dist.is_initialized():
        sent = [ids]
        dist.broadcast_object_list(sent, src=0)
        (ids,) = sent
    return ids


def model_state(model: nn.Module, ids: Mapping[str, Ids] | None = None) -> dict[str, Any]:
    """Return the model's state: dense tensors as they are, tables as remote tensors.

    Parameters
    ----------
    model
        With remote tables. A ZCH table has beside its weights ``[N, dim]`` the tensor
        ``<weights>.ids``, int64 ``[N]``.
    ids
        The ids of ZCH tables by the name of their weights; None: those that have rows now. Give
        what :func:`resident_ids` returned where :func:`optimizer_state` is to have the same.
    """
    known = resident_ids(model) if ids is None else ids
    tables: dict[str, Any] = {}
    for use in tables_of(model):
        own = known.get(use.fqn)
        tables[use.fqn] = use.weights(own)
        if own is not None:
            tables[f"{use.fqn}.ids"] = torch.from_numpy(own)
    return dense_state(model) | tables


def dense_state(model: nn.Module) -> dict[str, Any]:
    """Return what of the model's state is in this process."""
    tables = {use.fqn for use in tables_of(model)}
    return {key: value for key, value in model.state_dict().items() if key not in tables}


def optimizer_state(model: nn.Module, ids: Mapping[str, Ids] | None = None) -> dict[str, Any]:
    """Return the tables' optimizer state, and how many updates each has had from the model.

    ``ids`` is that of :func:`model_state`. The state of a ZCH table is one tensor
    ``<table>.state``, ``[N, state_floats]``.
    """
    known = resident_ids(model) if ids is None else ids
    return {
        "state": {
            use.fqn: use.state(known.get(use.fqn))
            | {f"{use.name}.iter": torch.tensor(use.site.step)}
            for use in tables_of(model)
        }
    }


def state_dict(
    model: nn.Module, *, dtensor: bool = False, bytes_max: int = MATERIALIZE_BYTES_MAX
) -> dict[str, Any]:
    """Return the model's state with the tables' rows in it.

    Parameters
    ----------
    model
        Updates that are on their way are awaited.
    dtensor
        Whether tables are DTensors, of which each rank of the process group reads its share of
        the rows, as TorchRec's ``output_dtensor`` has them; needs a process group.
    bytes_max
        What the tables may need in this process.

    Raises
    ------
    ValueError
        The tables need more than ``bytes_max``: save them chunk by chunk.
    """
    flush(model)
    state = model_state(model)
    ranks = dist.get_world_size() if dtensor else 1
    tensors = [value for value in state.values() if isinstance(value, RemoteTensor)]
    needed = sum(t.dtype.itemsize * t.shape[0] * t.shape[1] for t in tensors) // ranks
    if needed > bytes_max:
        raise ValueError(
            f"the tables need {needed} bytes here, {bytes_max} are allowed: embla.checkpoint.save"
            " needs memory for chunks only"
        )
    read = _read_shard if dtensor else _read_all
    return {k: read(v) if isinstance(v, RemoteTensor) else v for k, v in state.items()}


def _read_all(tensor: RemoteTensor) -> Tensor:
    out = torch.empty(tensor.shape, dtype=tensor.dtype)
    for begin, end in tensor.chunks():
        out[begin:end] = tensor.read(begin, end)
    return out


def _read_shard(tensor: RemoteTensor) -> DTensor:
    """Return this rank's rows, in the even cut that DTensor makes."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    begin, end = share_of_rows(tensor.shape[0], rank, ranks)
    return DTensor.from_local(
        tensor.read(begin, end),
        init_device_mesh("cpu", (ranks,)),
        [Shard(0)],
        run_check=False,
        shape=torch.Size(tensor.shape),
        stride=(tensor.shape[1], 1),
    )


def _scan_ids(use: TableUse) -> Ids:
    stretches = [rows.ids for rows in use.site.client.table(use.table).scan()]
    return np.concatenate([np.empty(0, np.int64), *stretches])


def _tables_of(module: nn.Module, prefix: str) -> Iterator[TableUse]:
    if hasattr(module, "remote_tables"):  # A collection in TorchRec's form.
        collection: Any = module
        for name, path, table in collection.remote_tables():
            yield TableUse(f"{prefix}{path}", name, collection.site, table)
    elif isinstance(module, RemoteModule):
        for table in dict.fromkeys(feature.table for feature in module.features):
            path = f"{table}.weight" if isinstance(module, EmbeddingBagSet) else "weight"
            yield TableUse(f"{prefix}{path}", table, module.site, table)
    else:
        for name, child in module.named_children():
            yield from _tables_of(child, f"{prefix}{name}.")
