"""What a model with remote tables consists of, under the names that TorchRec gives it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from embla.checkpoint.remote_tensor import RemoteTensor, state_of, weights_of
from embla.torch import EmbeddingBagSet, RemoteModule, Site, flush

MATERIALIZE_BYTES_MAX = 1 << 30


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
    weights
        The weights.
    """

    fqn: str
    name: str
    site: Site
    weights: RemoteTensor

    def state(self) -> dict[str, RemoteTensor]:
        """Return the optimizer state by TorchRec's names: ``<table>.momentum1``."""
        parts = state_of(self.weights.client, self.weights.table)
        return {f"{self.name}.{part}": tensor for part, tensor in parts.items()}


def tables_of(model: nn.Module) -> list[TableUse]:
    """Return the tables of ``model``; connects collections that are not.

    A collection's weights are named as TorchRec names them, those of EmbeddingBag and Embedding as
    torch does: ``<module>.weight``; those of an EmbeddingBagSet ``<module>.<table>.weight``.
    """
    return list(_tables_of(model, ""))


def model_state(model: nn.Module) -> dict[str, Any]:
    """Return the model's state: dense tensors as they are, tables as remote tensors."""
    tables = {use.fqn: use.weights for use in tables_of(model)}
    dense = {key: value for key, value in model.state_dict().items() if key not in tables}
    return dense | tables


def optimizer_state(model: nn.Module) -> dict[str, Any]:
    """Return the tables' optimizer state, and how many updates each has had from the model."""
    return {
        "state": {
            use.fqn: use.state() | {f"{use.name}.iter": torch.tensor(use.site.step)}
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
    rows = tensor.shape[0]
    block = -(-rows // ranks)
    begin, end = min(rank * block, rows), min((rank + 1) * block, rows)
    return DTensor.from_local(
        tensor.read(begin, end),
        init_device_mesh("cpu", (ranks,)),
        [Shard(0)],
        run_check=False,
        shape=torch.Size(tensor.shape),
        stride=(tensor.shape[1], 1),
    )


def _tables_of(module: nn.Module, prefix: str) -> Iterator[TableUse]:
    if hasattr(module, "remote_tables"):  # A collection in TorchRec's form.
        collection: Any = module
        for name, path, table in collection.remote_tables():
            weights = weights_of(collection.site.client, table)
            yield TableUse(f"{prefix}{path}", name, collection.site, weights)
    elif isinstance(module, RemoteModule):
        for table in dict.fromkeys(feature.table for feature in module.features):
            path = f"{table}.weight" if isinstance(module, EmbeddingBagSet) else "weight"
            weights = weights_of(module.site.client, table)
            yield TableUse(f"{prefix}{path}", table, module.site, weights)
    else:
        for name, child in module.named_children():
            yield from _tables_of(child, f"{prefix}{name}.")
