"""TorchRec's table configurations as tables of the service."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torchrec.modules.embedding_configs import (
    BaseEmbeddingConfig,
    CountBasedEvictionPolicy,
    DataType,
    NoEvictionPolicy,
    TimestampBasedEvictionPolicy,
)

import embla

_DTYPES = {DataType.FP32: "fp32", DataType.FP16: "fp16", DataType.BF16: "bf16"}
_INITIALIZERS: Mapping[Any, tuple[type[embla.Initializer], Mapping[str, float]]] = {
    torch.nn.init.uniform_: (embla.Uniform, {"a": 0.0, "b": 1.0}),
    torch.nn.init.normal_: (embla.Normal, {"mean": 0.0, "std": 1.0}),
    torch.nn.init.zeros_: (embla.Constant, {}),
    torch.nn.init.ones_: (embla.Constant, {"val": 1.0}),
    torch.nn.init.constant_: (embla.Constant, {"val": 0.0}),
}
_POLICIES = {
    CountBasedEvictionPolicy: "lfu",
    TimestampBasedEvictionPolicy: "lru",
    NoEvictionPolicy: "lru",
}


def to_table_spec(
    config: BaseEmbeddingConfig,
    optimizer: embla.Optimizer,
    *,
    name: str,
    zch: embla.Zch | None,
    sync: embla.Sync | bool = False,
) -> embla.TableSpec:
    """Return the table that ``config`` describes.

    Parameters
    ----------
    config
        Of an EmbeddingBagCollection or EmbeddingCollection.
    optimizer
        How the table learns.
    name
        The table's name in the service.
    zch
        Makes a table for any 64-bit ids, whatever ``config`` says of virtual tables.
    sync
        Makes a table with synchronous steps.

    Raises
    ------
    ValueError
        The service has no counterpart of a field.
    """
    refuse_unsupported(config)
    return embla.TableSpec(
        name=name,
        rows=config.num_embeddings,
        dim=config.embedding_dim,
        dtype=dtype_of(config),
        optimizer=optimizer,
        init=initializer_of(config),
        zch=zch or _virtual_table(config),
        sync=sync,
    )


def refuse_unsupported(config: BaseEmbeddingConfig) -> None:
    """Raise ValueError for fields that the service has no counterpart of."""
    dtype_of(config)
    for field, neutral in (
        ("num_embeddings_post_pruning", None),
        ("need_pos", False),
        ("input_dim", None),
        ("enable_embedding_update", False),
        ("stash_weights", False),
    ):
        if getattr(config, field) != neutral:
            raise ValueError(f"table {config.name}: the service has no {field}")


def dtype_of(config: BaseEmbeddingConfig) -> Any:
    """Return the service's name of the number format of ``config``."""
    dtype = _DTYPES.get(config.data_type)
    if dtype is None:
        raise ValueError(
            f"table {config.name}: the service trains fp32, fp16 and bf16, not {config.data_type};"
            " quantise what to_local() returns"
        )
    return dtype


def initializer_of(config: BaseEmbeddingConfig) -> embla.Initializer:
    """Return the rule that ``init_fn`` of ``config`` is."""
    function: Any = config.init_fn
    keywords: Mapping[str, float] = {}
    positional: tuple[Any, ...] = ()
    if isinstance(function, functools.partial):
        function, keywords, positional = function.func, function.keywords, function.args
    known = _INITIALIZERS.get(function)
    if known is None or positional or not set(keywords) <= set(known[1]):
        raise ValueError(
            f"table {config.name}: the service knows uniform_, normal_, zeros_, ones_ and constant_"
            " of torch.nn.init as init_fn; write other initial rows with Client.write_rows"
        )
    initializer, defaults = known
    return initializer(*{**defaults, **keywords}.values())


def _virtual_table(config: BaseEmbeddingConfig) -> embla.Zch | None:
    if not config.use_virtual_table:
        return None
    kind = type(config.virtual_table_eviction_policy or NoEvictionPolicy())
    policy = _POLICIES.get(kind)
    if policy is None:
        raise ValueError(f"table {config.name}: the service has no {kind.__name__}")
    return embla.Zch(buckets=config.total_num_buckets, policy=policy)  # type: ignore[arg-type]
