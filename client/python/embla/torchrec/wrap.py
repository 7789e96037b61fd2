"""Models of TorchRec with their collections moved into the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

import torchrec
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchrec.distributed.types import ShardingPlan
from torchrec.modules.mc_embedding_modules import (
    BaseManagedCollisionEmbeddingCollection,
)
from torchrec.modules.mc_embedding_modules import (
    ManagedCollisionEmbeddingBagCollection as TorchRecManagedBags,
)

import embla
from embla.torchrec.collection import RemoteCollection, default_client
from embla.torchrec.managed_collision import (
    ManagedCollisionEmbeddingBagCollection,
    ManagedCollisionEmbeddingCollection,
)
from embla.torchrec.modules import EmbeddingBagCollection, EmbeddingCollection
from embla.torchrec.stub import TableStub

Model = TypeVar("Model", bound=nn.Module)


def wrap(
    model: Model,
    client: embla.Client | None = None,
    *,
    plan: Mapping[str, str] | ShardingPlan | None = None,
    copy_rows: bool = True,
    **service: Any,
) -> Model:
    """Replace all collections of TorchRec in ``model``, nested ones too; return the model.

    In place of DistributedModelParallel. The dense part is left as it is: put the model into
    DistributedDataParallel, which leaves the tables alone.

    Parameters
    ----------
    model
        Its collections' optimizers were applied by ``_apply_optimizer_in_backward``.
    client
        None: :func:`embla.get_default_client`.
    plan
        Sharding types by table, or TorchRec's plan, of which the sharding types count.
    copy_rows
        Whether tables that did not exist begin with the rows of the model, unless these are on the
        meta device.
    **service
        The keyword arguments of :class:`embla.torchrec.RemoteCollection`.
    """
    client = client or default_client(service.get("sync", False))
    options = {"client": client, "sharding": sharding_types(plan), **service}
    replaced = _replace(model, options, copy_rows)
    if replaced is not None:
        return ignore_in_ddp(replaced)  # type: ignore[return-value]
    for parent, name, child in list(_children(model)):
        other = _replace(child, options, copy_rows)
        if other is not None:
            setattr(parent, name, other)
    return ignore_in_ddp(model)


def ignore_in_ddp(model: Model) -> Model:
    """Make DistributedDataParallel leave the tables of ``model`` alone; return the model.

    ``model`` is the very module that is given to DistributedDataParallel, which asks only that one.
    :func:`wrap` calls this.
    """
    stubs = [
        f"{name}.weight" if name else "weight"
        for name, module in model.named_modules()
        if isinstance(module, TableStub)
    ]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, stubs)
    return model


def sharding_types(plan: Mapping[str, str] | ShardingPlan | None) -> dict[str, str]:
    """Return the sharding type of each table that ``plan`` names."""
    if plan is None:
        return {}
    if not isinstance(plan, ShardingPlan):
        return dict(plan)
    return {
        table: sharding.sharding_type
        for module in plan.plan.values()
        for table, sharding in cast("Mapping[str, Any]", module).items()
    }


def _children(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Yield parents, names and children, but nothing inside a collection."""
    for name, child in model.named_children():
        yield model, name, child
        if not isinstance(child, _COLLECTIONS):
            yield from _children(child)


def _replace(module: nn.Module, options: dict[str, Any], copy_rows: bool) -> nn.Module | None:
    if isinstance(module, BaseManagedCollisionEmbeddingCollection):
        return _replace_managed(module, options)
    if isinstance(module, torchrec.EmbeddingBagCollection):
        ours: RemoteCollection = EmbeddingBagCollection(
            module.embedding_bag_configs(), module.is_weighted(), module.device, **options
        )
        return _take_over(ours, module.embedding_bags, "embedding_bags", copy_rows)
    if isinstance(module, torchrec.EmbeddingCollection):
        ours = EmbeddingCollection(
            module.embedding_configs(),
            module.device,
            module.need_indices(),
            module.use_gather_select(),
            module.use_gather_select_per_sharding(),
            **options,
        )
        return _take_over(ours, module.embeddings, "embeddings", copy_rows)
    return None


def _replace_managed(
    module: BaseManagedCollisionEmbeddingCollection, options: dict[str, Any]
) -> nn.Module:
    managed = module._managed_collision_collection
    # A row of such a model belongs to whatever id has it now: there is nothing to copy.
    inner = _replace(module._embedding_module, options, copy_rows=False)
    if isinstance(module, TorchRecManagedBags):
        assert isinstance(inner, EmbeddingBagCollection)
        return ManagedCollisionEmbeddingBagCollection(
            inner, managed, module._return_remapped_features
        )
    assert isinstance(inner, EmbeddingCollection)
    return ManagedCollisionEmbeddingCollection(inner, managed, module._return_remapped_features)


def _take_over(
    ours: RemoteCollection, tables: nn.ModuleDict, stubs: str, copy_rows: bool
) -> RemoteCollection:
    """Move attached optimizers, and leave a note of the rows that new tables begin with."""
    for name, table in tables.items():
        weight: Any = table.weight
        stub: Any = getattr(ours, stubs)[name].weight
        if classes := getattr(weight, "_optimizer_classes", None):
            stub._optimizer_classes = list(classes)
            stub._optimizer_kwargs = list(weight._optimizer_kwargs)
            stub._in_backward_optimizers = list(weight._in_backward_optimizers)
        if copy_rows and weight.device.type != "meta":
            ours.begin_with(name, weight.detach())
    return ours


_COLLECTIONS = (
    RemoteCollection,
    torchrec.EmbeddingBagCollection,
    torchrec.EmbeddingCollection,
    BaseManagedCollisionEmbeddingCollection,
)
