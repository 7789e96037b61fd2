"""Models as safetensors files: one for the dense part, one per table.

A file is eight bytes of length, a JSON header, and the tensors' bytes. Its size is known before its
rows are: so tables are written and read chunk by chunk.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from embla.checkpoint.model_state import (
    Ids,
    TableUse,
    dense_state,
    resident_ids,
    tables_of,
)
from embla.checkpoint.remote_tensor import RemoteTensor, check_shape
from embla.torch import flush

DENSE_FILE = "dense.safetensors"
_NAMES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
}


def save_safetensors(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Save ``model``: ``dense.safetensors``, and ``<name of the weights>.safetensors`` per table.

    A table's file holds ``weight``, its optimizer state by TorchRec's names, and ``iter``, the
    number of updates; of a ZCH table ``ids``, their ``weight`` and ``state``. ``folder`` is made
    where it is absent. Let no other trainer send updates meanwhile.
    """
    flush(model)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ids = resident_ids(model)
    dense = {k: v.contiguous() for k, v in dense_state(model).items() if isinstance(v, Tensor)}
    save_file(dense, folder / DENSE_FILE)
    for use in tables_of(model):
        _write_table(folder / f"{use.fqn}.safetensors", _tensors_of(use, ids.get(use.fqn)))


def load_safetensors(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Load into ``model`` what :func:`save_safetensors` has saved in ``folder``.

    A table's file may also have its ``weight`` only.

    Raises
    ------
    ValueError
        A tensor has another shape than the table's.
    """
    flush(model)
    folder = Path(folder)
    model.load_state_dict(load_file(folder / DENSE_FILE), strict=False)
    for use in tables_of(model):
        _read_table(folder / f"{use.fqn}.safetensors", use)


def _tensors_of(use: TableUse, ids: Ids | None) -> dict[str, RemoteTensor | Tensor]:
    tensors: dict[str, RemoteTensor | Tensor] = {"weight": use.weights(ids)}
    for name, part in use.state(ids).items():
        tensors[name.removeprefix(f"{use.name}.")] = part
    tensors["iter"] = torch.tensor([use.site.step])
    return tensors if ids is None else {"ids": torch.from_numpy(ids), **tensors}


def _write_table(path: Path, tensors: dict[str, RemoteTensor | Tensor]) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + math.prod(tensor.shape) * tensor.dtype.itemsize
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # The file gets its name when it is whole.
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            _write_tensor(file, tensor)
    unfinished.replace(path)


def _write_tensor(file: BinaryIO, tensor: RemoteTensor | Tensor) -> None:
    if isinstance(tensor, Tensor):
        file.write(tensor.numpy().tobytes())
        return
    for begin, end in tensor.chunks():
        file.write(tensor.read(begin, end).flatten().view(torch.uint8).numpy().tobytes())


def _read_table(path: Path, use: TableUse) -> None:
    with safe_open(path, framework="pt") as file:
        saved = set(file.keys())
        ids = file.get_tensor("ids").numpy() if use.is_zch else None
        for name, tensor in _tensors_of(use, ids).items():
            if (name not in saved and name != "weight") or name == "ids":
                continue
            if isinstance(tensor, Tensor):
                use.site.step = int(file.get_tensor(name))
                continue
            slices = file.get_slice(name)
            check_shape(f"{name} of {path}", tensor, tuple(slices.get_shape()))
            for begin, end in tensor.chunks():
                tensor.write(begin, slices[begin:end])
