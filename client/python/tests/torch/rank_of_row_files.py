"""One rank of test_row_files.py: ``rank_of_row_files.py FOLDER TENSOR EXPECTED``, under torchrun.

Loads its half of a tensor from an export, and compares it with the half of a NumPy file.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, zeros


def main() -> None:
    folder, name, expected_path = sys.argv[1:]
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    expected = torch.from_numpy(np.load(expected_path))
    mesh = init_device_mesh("cpu", (ranks,))
    tensor = zeros(*expected.shape, device_mesh=mesh, placements=[Shard(0)])
    dcp.load({name: tensor}, storage_reader=dcp.HuggingFaceStorageReader(folder))
    assert torch.equal(tensor.to_local(), expected.chunk(ranks)[rank])
    sys.stdout.write(f"rank {rank} has {len(tensor.to_local())} rows\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
