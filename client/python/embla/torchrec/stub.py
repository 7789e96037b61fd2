"""A placeholder for a table's rows in a module: a name, a shape, and no memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchrec.modules.embedding_configs import BaseEmbeddingConfig
from typing_extensions import Self

from embla import Client
from embla.torchrec.rows import write_all


@dataclass(frozen=True)
class RemoteTable:
    """The rows of a table in a ``state_dict``: where they are, not what they are.

    :mod:`embla.checkpoint` reads and writes them.

    Attributes
    ----------
    name
        The table's name in the service.
    rows
        How many it has.
    dim
        Columns.
    dtype
        ``"fp32"``, ``"fp16"`` or ``"bf16"``.
    coordinator
        The address of its cluster.
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
        self._client: Client | None = None

    def describe(self, table: RemoteTable, client: Client) -> None:
        """Set what ``state_dict()`` says of the table, and who writes rows that are loaded."""
        self._table = table
        self._client = client

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        return self

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        destination[f"{prefix}weight"] = self._table

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Write rows that are there to the service; a table of the same shape is left as it is."""
        key = f"{prefix}weight"
        value = state_dict.get(key)
        if value is None:
            missing_keys.append(key)
            return
        shape = (value.rows, value.dim) if isinstance(value, RemoteTable) else tuple(value.shape)
        if shape != tuple(self.weight.shape):
            error_msgs.append(f"{key} is {shape}, the table is {tuple(self.weight.shape)}")
        elif isinstance(value, Tensor) and self._client is None:
            error_msgs.append(f"{key}: call connect() of the collection before rows are loaded")
        elif isinstance(value, Tensor):
            assert self._client is not None
            write_all(self._client, self._table.name, value)

    def __getstate__(self) -> dict[str, Any]:
        # The collection describes the copy.
        return self.__dict__ | {"_client": None}
