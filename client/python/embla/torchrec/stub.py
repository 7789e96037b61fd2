"""What stands for a table's rows in a module: a name, a shape, and no memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchrec.modules.embedding_configs import BaseEmbeddingConfig
from typing_extensions import Self


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
        self._table = RemoteTable(config.name, *shape, "fp32", "")

    def describe(self, table: RemoteTable) -> None:
        """Set what ``state_dict()`` says of the table."""
        self._table = table

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        return self

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        destination[f"{prefix}weight"] = self._table
