"""Checkpoints with DTensors of two ranks go from TorchRec to the service and back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import apply_optimizer
from rank_of_dtensors import OPTIMIZER, TABLES, configs
from torch import nn

import embla.checkpoint
from embla.torchrec import EmbeddingBagCollection

RANK = Path(__file__).parent / "rank_of_dtensors.py"


def run_ranks(verb: str, folder: Path) -> dict[str, list[torch.Tensor]]:
    """Run two ranks; return what they then have: weights and sums of each table."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(RANK), verb, str(folder)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    parts = {table: [torch.full((50, 8), torch.nan) for _ in range(2)] for table in TABLES}
    for rank in range(2):
        for table, shards in torch.load(folder / f"shards.{rank}").items():
            for whole, own in zip(parts[table], shards, strict=True):
                for (row, column), shard in own:
                    whole[row : row + shard.shape[0], column : column + shard.shape[1]] = shard
    return parts


@pytest.mark.slow
def test_dtensors_of_torchrec_load_and_ours_load_into_torchrec(
    cluster, client, service, monkeypatch, tmp_path
):
    monkeypatch.setenv("EMBLA_COORDINATOR", cluster.coordinator)
    monkeypatch.setenv("EMBLA_ADMIN", cluster.admin_address)
    theirs = run_ranks("save", tmp_path / "theirs")
    module = EmbeddingBagCollection(configs(), **service)
    apply_optimizer(module, OPTIMIZER)
    embla.checkpoint.load(nn.ModuleDict({"bags": module}), tmp_path / "theirs")
    for table, (weights, sums) in theirs.items():
        assert (sums > 0).any(), table
        for read, expected in ((client.read_rows, weights), (client.read_state, sums)):
            assert torch.equal(torch.from_numpy(read(table, np.arange(50))), expected), table

    (tmp_path / "ours").mkdir()
    for table, (weights, _) in run_ranks("load", tmp_path / "ours").items():
        assert torch.equal(weights, theirs[table][0]), table
