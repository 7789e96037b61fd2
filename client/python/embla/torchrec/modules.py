"""EmbeddingBagCollection and EmbeddingCollection with TorchRec's constructors and results."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchrec.modules.embedding_configs import (
    BaseEmbeddingConfig,
    EmbeddingBagConfig,
    EmbeddingConfig,
    PoolingType,
)
from torchrec.modules.embedding_modules import (
    EmbeddingBagCollectionInterface,
    EmbeddingCollectionInterface,
    get_embedding_names_by_table,
    reorder_inverse_indices,
)
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from torchrec.sparse.tensor_dict import maybe_td_to_kjt

from embla.torchrec.collection import RemoteCollection

_POOLING = {PoolingType.SUM: "sum", PoolingType.MEAN: "mean"}


class EmbeddingBagCollection(RemoteCollection, EmbeddingBagCollectionInterface):
    """Pooled rows of many tables: takes the place of TorchRec's EmbeddingBagCollection.

    Parameters
    ----------
    tables
        As TorchRec's.
    is_weighted
        Whether the features have a weight per id; tables that pool by mean refuse it.
    device
        Where rows arrive; None: where the module is moved to. The meta device is as None: there
        is nothing to allocate.
    **service
        The keyword arguments of :class:`embla.torchrec.RemoteCollection`.
    """

    def __init__(
        self,
        tables: list[EmbeddingBagConfig],
        is_weighted: bool = False,
        device: torch.device | None = None,
        **service: Any,
    ) -> None:
        super().__init__(tables, "embedding_bags", device, **service)
        for config in tables:
            if config.pooling not in _POOLING:
                raise ValueError(
                    f"table {config.name}: the service does not pool by {config.pooling}"
                )
            if is_weighted and config.pooling == PoolingType.MEAN:
                raise ValueError(f"table {config.name}: a mean has no weights")
        self._is_weighted = is_weighted
        self._embedding_bag_configs = tables
        names = get_embedding_names_by_table(tables)
        self._embedding_names = [name for table in names for name in table]
        self._dims = [config.embedding_dim for config in tables for _ in config.feature_names]

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Return ``[B, sum of dims]`` float32, keyed by feature in the order of the tables.

        A feature of two tables is keyed ``feature@table``. Features with batch sizes of their own
        need inverse indices, which bring them to one.

        Raises
        ------
        KeyError
            A feature of the tables is missing.
        """
        selected, rows = self._lookup(features)
        return KeyedTensor(
            keys=self._embedding_names,
            length_per_key=self._dims,
            values=self._expand(features, selected, rows),
        )

    def is_weighted(self) -> bool:
        """Whether the features have a weight per id."""
        return self._is_weighted

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """Return the tables' configurations."""
        return self._embedding_bag_configs

    def _has_weights(self) -> bool:
        return self._is_weighted

    def _pooling_of(self, config: BaseEmbeddingConfig) -> str:
        assert isinstance(config, EmbeddingBagConfig)
        return _POOLING[config.pooling]

    def _expand(
        self, features: KeyedJaggedTensor, selected: KeyedJaggedTensor, rows: Tensor
    ) -> Tensor:
        """Bring all features to one batch size where inverse indices say how."""
        indices = maybe_td_to_kjt(features, None).inverse_indices_or_none()
        varies = selected.variable_stride_per_key()
        if indices is None:
            if varies:
                raise ValueError("features with batch sizes of their own need inverse indices")
            return rows
        if varies:
            sizes = selected.stride_per_key()
            flat = [size * dim for size, dim in zip(sizes, self._dims, strict=True)]
            blocks = [
                block.view(size, dim)
                for block, size, dim in zip(rows.split(flat), sizes, self._dims, strict=True)
            ]
        else:
            blocks = list(rows.split(self._dims, dim=1))
        order = reorder_inverse_indices(indices, self._feature_names)
        return torch.cat([b.index_select(0, i) for b, i in zip(blocks, order, strict=True)], dim=1)


class EmbeddingCollection(RemoteCollection, EmbeddingCollectionInterface):
    """A row per id of many tables of one dim: takes the place of TorchRec's EmbeddingCollection.

    Parameters
    ----------
    tables
        As TorchRec's.
    device
        Where rows arrive; None: where the module is moved to. The meta device is as None.
    need_indices
        Whether results carry their ids as weights.
    use_gather_select, use_gather_select_per_sharding
        Are kept and change nothing.
    **service
        The keyword arguments of :class:`embla.torchrec.RemoteCollection`.
    """

    def __init__(
        self,
        tables: list[EmbeddingConfig],
        device: torch.device | None = None,
        need_indices: bool = False,
        use_gather_select: bool = False,
        use_gather_select_per_sharding: dict[str, bool] | None = None,
        **service: Any,
    ) -> None:
        dims = {config.embedding_dim for config in tables}
        if len(dims) > 1:
            raise ValueError(
                "All tables in a EmbeddingCollection are required to have same embedding dimension,"
                f" not {sorted(dims)}"
            )
        super().__init__(tables, "embeddings", device, **service)
        self._embedding_configs = tables
        self._embedding_dim = dims.pop() if dims else -1
        self._need_indices = need_indices
        self._use_gather_select = use_gather_select
        self._use_gather_select_per_sharding = use_gather_select_per_sharding
        self._names_by_table: list[list[str]] = get_embedding_names_by_table(tables)

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        """Return the rows of each feature: values ``[ids, dim]`` float32 and the lengths.

        Raises
        ------
        KeyError
            A feature of the tables is missing.
        """
        selected, rows = self._lookup(features)
        counts = selected.length_per_key()
        lengths = selected.lengths().split(selected.stride_per_key())
        names = [name for table in self._names_by_table for name in table]
        ids = selected.values().split(counts)
        return {
            name: JaggedTensor(
                values=part,
                lengths=bag_lengths,
                weights=part_ids if self._need_indices else None,
            )
            for name, part, bag_lengths, part_ids in zip(
                names, rows.split(counts), lengths, ids, strict=True
            )
        }

    def need_indices(self) -> bool:
        """Whether results carry their ids as weights."""
        return self._need_indices

    def embedding_dim(self) -> int:
        """Return the dim of all tables."""
        return self._embedding_dim

    def embedding_configs(self) -> list[EmbeddingConfig]:
        """Return the tables' configurations."""
        return self._embedding_configs

    def embedding_names_by_table(self) -> list[list[str]]:
        """Return the keys of the results, by table."""
        return self._names_by_table

    def use_gather_select(self) -> bool:
        """Return what the constructor was given."""
        return self._use_gather_select

    def use_gather_select_per_sharding(self) -> dict[str, bool] | None:
        """Return what the constructor was given."""
        return self._use_gather_select_per_sharding

    def _pooling_of(self, config: BaseEmbeddingConfig) -> str:
        return "none"
