"""Models in checkpoints of ``torch.distributed.checkpoint``."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from embla.checkpoint.model_state import (
    Ids,
    dense_state,
    model_state,
    optimizer_state,
    resident_ids,
    tables_of,
)
from embla.checkpoint.planners import LoadPlanner, SavePlanner
from embla.checkpoint.remote_tensor import RemoteTensor, check_shape
from embla.torch import flush

_DENSE_OPTIMIZER = "dense_optimizer"


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Save a model: dense weights, rows, the rows' optimizer state, and numbers of updates.

    Rows are read chunk by chunk, after the updates of all ranks; let no other trainer send any
    meanwhile. With a process group every rank calls it, and saves a share.

    Of a ZCH table the ids that have rows are saved with their rows; memory holds all its ids. When
    and how often each id was touched is not saved.

    Parameters
    ----------
    model
        With remote tables.
    path
        A folder, for ``torch.distributed.checkpoint``: weights are under ``model``, the tables'
        optimizer state under ``optimizer.state``, with TorchRec's names.
    optimizer
        Of the dense parameters.
    """
    _flush_all(model)
    ids = resident_ids(model)
    state = {"model": model_state(model, ids), "optimizer": optimizer_state(model, ids)}
    if optimizer is not None:
        state[_DENSE_OPTIMIZER] = _to_bytes(optimizer.state_dict())  # type: ignore[assignment]
    with _one_process_is_meant():
        dcp.save(state, checkpoint_id=Path(path), planner=SavePlanner())


def load(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    optimizer: torch.optim.Optimizer | None = None,
    with_optimizer_state: bool = True,
) -> None:
    """Load a model that :func:`save` or a TorchRec training has saved, however it was sharded.

    Rows go to the service chunk by chunk, onto any plan. With a process group every rank calls it,
    and writes a share.

    The ids of a ZCH table get rows whatever its admission is, and other ids keep theirs. One whose
    group of slots is full of ids that the table's policy keeps is left out: that may happen where
    the table has fewer slots or other buckets than the one that was saved.

    Parameters
    ----------
    model
        With remote tables, which exist or are created.
    path
        The folder.
    optimizer
        Of the dense parameters; its state is loaded, too.
    with_optimizer_state
        False: only weights are loaded, and the rows' optimizer state stays as it is.

    Raises
    ------
    RuntimeError
        The checkpoint lacks a tensor.
    ValueError
        A tensor has another shape than the model's.
    """
    _flush_all(model)
    metadata = dcp.FileSystemReader(Path(path)).read_metadata()
    ids = _saved_ids(model, Path(path), metadata)
    state: dict[str, Any] = {"model": model_state(model, ids)}
    if with_optimizer_state:
        state["optimizer"] = _what_may_lack(optimizer_state(model, ids), metadata)
    if optimizer is not None:
        state[_DENSE_OPTIMIZER] = _bytes_like(metadata)
    _check(state, metadata)
    with _one_process_is_meant():
        dcp.load(state, checkpoint_id=Path(path), planner=LoadPlanner())
    model.load_state_dict({k: state["model"][k] for k in dense_state(model)}, strict=False)
    if with_optimizer_state:
        _set_steps(model, state["optimizer"]["state"])
    if optimizer is not None:
        optimizer.load_state_dict(_from_bytes(state[_DENSE_OPTIMIZER]))


def _flush_all(model: nn.Module) -> None:
    """Wait until the updates of all ranks are acknowledged."""
    flush(model)
    if dist.is_initialized():
        dist.barrier()


def _saved_ids(model: nn.Module, path: Path, metadata: Metadata) -> dict[str, Ids]:
    """Return the ids of the checkpoint's rows of each ZCH table."""
    tensors = {}
    for use in tables_of(model):
        if use.is_zch:
            saved = metadata.state_dict_metadata.get(f"model.{use.fqn}.ids")
            if not isinstance(saved, TensorStorageMetadata):
                raise RuntimeError(f"the checkpoint lacks model.{use.fqn}.ids of a ZCH table")
            tensors[use.fqn] = torch.empty(saved.size, dtype=torch.int64)
    if tensors:
        wanted = {"model": {f"{fqn}.ids": ids for fqn, ids in tensors.items()}}
        with _one_process_is_meant():
            dcp.load(wanted, checkpoint_id=path)
    return {fqn: ids.numpy() for fqn, ids in tensors.items()}


def _what_may_lack(state: dict[str, Any], metadata: Metadata) -> dict[str, Any]:
    """Leave numbers of steps out that the checkpoint does not have: TorchRec saves none of rows."""
    saved = metadata.state_dict_metadata
    optional = (".iter", ".row_steps")
    return {
        "state": {
            fqn: {
                name: value
                for name, value in parts.items()
                if not name.endswith(optional) or f"optimizer.state.{fqn}.{name}" in saved
            }
            for fqn, parts in state["state"].items()
        }
    }


def _check(state: dict[str, Any], metadata: Metadata) -> None:
    """Raise what is wrong with a checkpoint before anything is written."""
    saved, wanted = metadata.state_dict_metadata, flatten_state_dict(state)[0]
    if missing := [key for key in wanted if key not in saved]:
        raise RuntimeError(f"the checkpoint lacks {', '.join(missing)}")
    for key, tensor in wanted.items():
        found = saved[key]
        if isinstance(tensor, RemoteTensor) and isinstance(found, TensorStorageMetadata):
            check_shape(key, tensor, tuple(found.size))


def _set_steps(model: nn.Module, loaded: dict[str, Any]) -> None:
    for use in tables_of(model):
        step = loaded[use.fqn].get(f"{use.name}.iter")
        if step is not None:
            use.site.step = int(step)


def _to_bytes(value: Any) -> Tensor:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _from_bytes(tensor: Tensor) -> Any:
    return torch.load(io.BytesIO(tensor.numpy().tobytes()), weights_only=True)


def _bytes_like(metadata: Metadata) -> Tensor:
    saved = metadata.state_dict_metadata.get(_DENSE_OPTIMIZER)
    if not isinstance(saved, TensorStorageMetadata):
        raise RuntimeError("the checkpoint has no state of a dense optimizer")
    return torch.empty(saved.size, dtype=torch.uint8)


@contextlib.contextmanager
def _one_process_is_meant() -> Iterator[None]:
    """Keep torch from warning that there is no process group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is ")
        yield
