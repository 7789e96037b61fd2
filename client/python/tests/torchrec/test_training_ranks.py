"""Two ranks under torchrun, with DistributedDataParallel and ``sync=True``, train as one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rank_of_training import OPTIMIZERS, RANKS, STEPS, Model, batch, dense_optimizer

RANK = Path(__file__).parent / "rank_of_training.py"


def train_alone(optimizer: str) -> Model:
    """Train TorchRec's own model in this process, on the joined batches of all ranks."""
    model = Model(optimizer)
    dense = dense_optimizer(model)
    for step in range(STEPS):
        dense.zero_grad()
        # Parts are of one size: the mean of their means is that of the joined batch.
        torch.stack([model(batch(step, rank)) for rank in range(RANKS)]).mean().backward()
        dense.step()
    return model


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_ranks_equal_torchrec_on_the_joined_batch(
    cluster, client, monkeypatch, tmp_path, optimizer
):
    monkeypatch.setenv("EMBLA_COORDINATOR", cluster.coordinator)
    monkeypatch.setenv("EMBLA_ADMIN", cluster.admin_address)
    trained = tmp_path / "trained.pt"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
         str(RANKS), str(RANK), optimizer, str(trained)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    ours, alone = torch.load(trained), train_alone(optimizer)
    began = Model(optimizer)
    for name, rows in ours["rows"].items():
        expected = alone.bags.embedding_bags[name].weight.detach()
        assert (expected - began.bags.embedding_bags[name].weight).abs().max() > 0.01
        torch.testing.assert_close(rows, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(ours["dense"], alone.dense.state_dict(), rtol=0, atol=1e-6)
