"""Collections whose ids are any 64-bit numbers, under TorchRec's names for them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    LFU_EvictionPolicy,
    LRU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

import embla
from embla.torchrec.collection import RemoteCollection
from embla.torchrec.modules import EmbeddingBagCollection, EmbeddingCollection

_POLICIES = {
    DistanceLFU_EvictionPolicy: "distance_lfu",
    LFU_EvictionPolicy: "lfu",
    LRU_EvictionPolicy: "lru",
}


class _ManagedCollision(nn.Module):
    """A collection over ZCH tables.

    The service gives every id a row of its own, admits and evicts; so ids are sent as they are and
    there are no remapped features. Lookups only find: evaluation changes nothing.
    """

    def __init__(
        self,
        embedding_module: RemoteCollection,
        managed_collision_collection: ManagedCollisionCollection,
        return_remapped_features: bool,
    ) -> None:
        super().__init__()
        if return_remapped_features:
            raise ValueError("ids are not remapped: the service takes them as they are")
        self._embedding_module = embedding_module
        embedding_module.declare_zch(zch_of(managed_collision_collection))


class ManagedCollisionEmbeddingBagCollection(_ManagedCollision):
    """Takes the place of TorchRec's ManagedCollisionEmbeddingBagCollection.

    Parameters
    ----------
    embedding_bag_collection
        Ours, before its first use.
    managed_collision_collection
        TorchRec's: how many ids have rows, and which lose theirs.
    return_remapped_features
        Refused where true.
    allow_in_place_embed_weight_update
        Changes nothing.
    """

    def __init__(
        self,
        embedding_bag_collection: EmbeddingBagCollection,
        managed_collision_collection: ManagedCollisionCollection,
        return_remapped_features: bool = False,
        allow_in_place_embed_weight_update: bool = False,
    ) -> None:
        super().__init__(
            embedding_bag_collection, managed_collision_collection, return_remapped_features
        )

    @property
    def _embedding_bag_collection(self) -> EmbeddingBagCollection:
        assert isinstance(self._embedding_module, EmbeddingBagCollection)
        return self._embedding_module

    def forward(self, features: KeyedJaggedTensor) -> tuple[KeyedTensor, None]:
        """Return pooled rows, and None in place of remapped features."""
        return self._embedding_bag_collection(features), None


class ManagedCollisionEmbeddingCollection(_ManagedCollision):
    """Takes the place of TorchRec's ManagedCollisionEmbeddingCollection.

    Parameters
    ----------
    embedding_collection
        Ours, before its first use.
    managed_collision_collection
        TorchRec's: how many ids have rows, and which lose theirs.
    return_remapped_features
        Refused where true.
    allow_in_place_embed_weight_update
        Changes nothing.
    """

    def __init__(
        self,
        embedding_collection: EmbeddingCollection,
        managed_collision_collection: ManagedCollisionCollection,
        return_remapped_features: bool = False,
        allow_in_place_embed_weight_update: bool = False,
    ) -> None:
        super().__init__(
            embedding_collection, managed_collision_collection, return_remapped_features
        )

    @property
    def _embedding_collection(self) -> EmbeddingCollection:
        assert isinstance(self._embedding_module, EmbeddingCollection)
        return self._embedding_module

    def forward(self, features: KeyedJaggedTensor) -> tuple[dict[str, JaggedTensor], None]:
        """Return the rows of each feature, and None in place of remapped features."""
        return self._embedding_collection(features), None


def zch_of(collection: ManagedCollisionCollection) -> Mapping[str, embla.Zch]:
    """Return what each table of ``collection`` is as a ZCH table.

    Raises
    ------
    ValueError
        A module or policy has no counterpart in the service.
    """
    zch = {}
    for name, module in collection._managed_collision_modules.items():
        if not isinstance(module, MCHManagedCollisionModule):
            raise ValueError(f"table {name}: the service has no {type(module).__name__}")
        policy = module._eviction_policy
        kind = _POLICIES.get(type(policy))
        if kind is None:
            raise ValueError(f"table {name}: the service has no {type(policy).__name__}")
        zch[name] = embla.Zch(policy=kind)  # type: ignore[arg-type]
    return zch
