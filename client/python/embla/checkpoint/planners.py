"""Planners with which ``torch.distributed.checkpoint`` saves and loads remote tensors.

A remote tensor is one tensor of the checkpoint, cut into chunks; each is read from the service when
the writer wants it, and written to it when the reader has it. So memory holds one chunk per thread
of the writer, and no process group is needed; with one, its ranks share the chunks.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    create_default_local_load_plan,
    create_default_local_save_plan,
)
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from embla.checkpoint.remote_tensor import RemoteTensor, check_shape


class SavePlanner(DefaultSavePlanner):
    """Saves remote tensors among others: ``dcp.save(state, planner=SavePlanner())``.

    Parameters are those of torch's ``DefaultSavePlanner``.
    """

    def create_local_plan(self) -> SavePlan:
        """Plan the items of this rank."""
        remote, local = _partition(self.state_dict)
        plan = create_default_local_save_plan(local, self.is_coordinator)
        items = list(plan.items)
        for fqn, tensor in remote.items():
            items += [_write_item(fqn, tensor, chunk) for chunk in _own_chunks(tensor)]
        mappings = self.mappings if self.flatten_state_dict else None
        self.plan = dataclasses.replace(plan, items=items, planner_data=mappings)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Any:
        """Return what an item consists of; a chunk is read now."""
        tensor = self.state_dict[write_item.index.fqn]
        if not isinstance(tensor, RemoteTensor):
            return super().resolve_data(write_item)
        assert write_item.tensor_data is not None
        chunk = write_item.tensor_data.chunk
        return tensor.read(chunk.offsets[0], chunk.offsets[0] + chunk.sizes[0])


class LoadPlanner(DefaultLoadPlanner):
    """Loads remote tensors among others, whoever saved them and however they were sharded.

    ``dcp.load(state, planner=LoadPlanner())``. Parameters are those of torch's
    ``DefaultLoadPlanner``.
    """

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take over what is to be loaded."""
        flat, paths = flatten_state_dict(state_dict)
        super().set_up_planner(state_dict, metadata, is_coordinator)
        # Values of types that torch does not know have become None.
        for fqn, tensor in _partition(flat)[0].items():
            set_element(state_dict, paths[fqn], tensor)
            self.state_dict[fqn] = tensor

    def create_local_plan(self) -> LoadPlan:
        """Plan the items of this rank.

        Raises
        ------
        ValueError
            A tensor of the checkpoint has another shape than the table.
        """
        assert self.metadata is not None
        self._remote, local = _partition(self.state_dict)
        strict = not self.allow_partial_load
        plan = create_default_local_load_plan(local, self.metadata, strict)
        items = list(plan.items)
        for fqn, tensor in self._remote.items():
            saved = self.metadata.state_dict_metadata.get(fqn)
            if saved is None and not strict:
                continue
            if not isinstance(saved, TensorStorageMetadata):
                raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")
            check_shape(fqn, tensor, tuple(saved.size))
            items += create_read_items_for_chunk_list(fqn, saved, _own_chunks(tensor))
        return LoadPlan(items, planner_data=plan.planner_data)

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        """Return where an item goes: of a remote tensor, memory for the chunk."""
        if read_item.dest_index.fqn not in self._remote:
            local: torch.Tensor = super().resolve_tensor(read_item)
            return local
        dtype = self._remote[read_item.dest_index.fqn].dtype
        return torch.empty(read_item.lengths, dtype=dtype)

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Write a chunk that has been read to the service."""
        remote = self._remote.get(read_item.dest_index.fqn)
        if remote is None:
            super().commit_tensor(read_item, tensor)
            return
        # Destinations are counted from the chunk's begin.
        assert read_item.dest_index.offset is not None
        begin = read_item.dest_index.offset[0] + read_item.dest_offsets[0]
        column = read_item.dest_offsets[1] if len(read_item.dest_offsets) == 2 else 0
        remote.write(begin, tensor, column)


def _partition(state: dict[str, Any]) -> tuple[dict[str, RemoteTensor], dict[str, Any]]:
    remote = {key: value for key, value in state.items() if isinstance(value, RemoteTensor)}
    return remote, {key: value for key, value in state.items() if key not in remote}


def _own_chunks(tensor: RemoteTensor) -> list[ChunkStorageMetadata]:
    """Return the chunks of this rank."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    return [
        ChunkStorageMetadata(
            offsets=torch.Size([begin, *(0 for _ in tensor.shape[1:])]),
            sizes=torch.Size([end - begin, *tensor.shape[1:]]),
        )
        for begin, end in tensor.chunks(rank, ranks)
    ]


def _write_item(fqn: str, tensor: RemoteTensor, chunk: ChunkStorageMetadata) -> WriteItem:
    return WriteItem(
        index=MetadataIndex(fqn, chunk.offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=chunk,
            properties=TensorProperties(dtype=tensor.dtype),
            size=torch.Size(tensor.shape),
        ),
    )
