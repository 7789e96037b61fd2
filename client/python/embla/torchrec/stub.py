"""What stands for a table's rows in a module: a name, a shape, and no memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchrec.modules.embedding_configs import BaseEmbeddingConfig
from typing_extensions import Self

from embla import Client


@dataclass(frozen=True)
class RemoteTable:
    """The rows of a table in a ``state_dict``: where they are, not what they are.

    :mod:`embla.checkpoint` reads and writes them.
    """

    name: str
    rows: int
    dim: int
    dtype: str
    coordinator: str


class TableStub(nn.Module):
    """Has ``weight`` at TorchRec's name for it: a parameter on the meta device.

    So optimizers can be attached to the table, and parameters can be counted and named. It gets no
    gradient, and moving the model to a device leaves it alone. ``state_dict()`` has a
    :class:`RemoteTable` in its place.
    """

    def __init__(self, config: BaseEmbeddingConfig) -> None:
        super().__init__()
        shape = (config.num_embeddings, config.embedding_dim)
        self.weight = nn.Parameter(torch.empty(shape, device="meta"))
        self.weight._ddp_ignored = True  # type: ignore[attr-defined]
        self.client: Client | None = None
        self.table = config.name
        self.dtype = "fp32"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        return self

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        rows, dim = self.weight.shape
        address = "" if self.client is None else self.client.coordinator
        destination[f"{prefix}weight"] = RemoteTable(self.table, rows, dim, self.dtype, address)
