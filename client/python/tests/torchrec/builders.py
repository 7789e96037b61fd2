"""Configurations, features and pairs of equal modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torchrec
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec import EmbeddingBagConfig, EmbeddingConfig, KeyedJaggedTensor, PoolingType

import embla.torchrec


def bag_config(name: str, features: Sequence[str], dim: int = 8, **fields: Any) -> Any:
    """Returns a table of 50 rows that pools by sum."""
    return EmbeddingBagConfig(
        **{
            "name": name,
            "embedding_dim": dim,
            "num_embeddings": 50,
            "feature_names": list(features),
            "pooling": PoolingType.SUM,
        }
        | fields
    )


def config(name: str, features: Sequence[str], dim: int = 8, **fields: Any) -> Any:
    """Returns a table of 50 rows that does not pool."""
    return EmbeddingConfig(
        **{
            "name": name,
            "embedding_dim": dim,
            "num_embeddings": 50,
            "feature_names": list(features),
        }
        | fields
    )


def features(
    lengths: dict[str, Sequence[int]],
    *,
    seed: int = 0,
    weighted: bool = False,
    rows: int = 50,
    dtype: torch.dtype = torch.int64,
    **options: Any,
) -> KeyedJaggedTensor:
    """Returns random ids, as many per bag as ``lengths`` says."""
    flat = torch.tensor([n for part in lengths.values() for n in part], dtype=torch.int32)
    generator = torch.Generator().manual_seed(seed)
    count = int(flat.sum())
    return KeyedJaggedTensor(
        keys=list(lengths),
        values=torch.randint(0, rows, (count,), generator=generator).to(dtype),
        lengths=flat,
        weights=torch.rand(count, generator=generator) if weighted else None,
        **options,
    )


def apply_optimizer(module: nn.Module, optimizer: Any = torch.optim.SGD, **kwargs: Any) -> None:
    """Attaches an optimizer to all parameters, as TorchRec's users do."""
    _apply_optimizer_in_backward(optimizer, module.parameters(), kwargs or {"lr": 0.1})


def copy_rows(module: Any, local: nn.Module) -> None:
    """Gives TorchRec's module the rows of the service."""
    module.connect()
    client = module.site.client
    tables = local.embedding_bags if hasattr(local, "embedding_bags") else local.embeddings
    for name, table in tables.items():
        rows = client.read_rows(name, np.arange(table.num_embeddings))
        table.weight.data.copy_(torch.from_numpy(rows))


def pair(
    configs: Sequence[Any],
    service: dict[str, Any],
    optimizer: Any = torch.optim.SGD,
    optimizer_kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """Returns our module and TorchRec's, with equal rows and the same optimizer."""
    bags = isinstance(configs[0], EmbeddingBagConfig)
    name = "EmbeddingBagCollection" if bags else "EmbeddingCollection"
    ours = getattr(embla.torchrec, name)(tables=list(configs), **options, **service)
    theirs = getattr(torchrec, name)(tables=list(configs), **options)
    apply_optimizer(ours, optimizer, **(optimizer_kwargs or {"lr": 0.1}))
    copy_rows(ours, theirs)
    apply_optimizer(theirs, optimizer, **(optimizer_kwargs or {"lr": 0.1}))
    return ours, theirs


def rows_of(module: Any) -> dict[str, torch.Tensor]:
    """Returns the rows of each table of ours."""
    client = module.site.client
    return {
        feature.table: torch.from_numpy(client.read_rows(feature.table, np.arange(50)))
        for feature in module.site.features
    }
