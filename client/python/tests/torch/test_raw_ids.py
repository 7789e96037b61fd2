"""The quickstart's main job from Python: raw ids are trained while their shards move."""

from __future__ import annotations

import torch
from torch import nn

import embla
import embla.torch

STEPS_BEFORE, STEPS_MAX = 10, 5_000


def train(steps: int | None) -> list[float]:
    """Return the losses of so many steps; None: until shards have moved from 2 nodes to 4 to 3."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    known = torch.randint(-(1 << 62), 1 << 62, (5_000,), generator=generator)
    worth = torch.randn(len(known), generator=generator)
    losses: list[float] = []
    with embla.LocalCluster(nodes=4, devices=1) as cluster, cluster.connect() as client:
        # Fewer rows than ids: some are evicted for others.
        spec = embla.TableSpec("raw", 2_048, 16, optimizer=embla.Adagrad(lr=0.1),
                               zch=embla.Zch(buckets=16, policy="lfu"))  # fmt: skip
        cluster.admin.create_table(spec, embla.Placement("row_wise", nodes=["node1", "node2"]))
        # Sums of a bag's rows are made here: nodes would add them by where the rows are.
        rows = embla.torch.Embedding(client, "raw")
        over = nn.Linear(16, 1)
        dense = torch.optim.Adam(over.parameters(), lr=1e-2)
        shards, job = [4, 3], None
        while len(losses) < (steps or STEPS_MAX):
            moves = steps is None and len(losses) >= STEPS_BEFORE
            if moves and (job is None or cluster.admin.job(job.id).is_over):
                if not shards:
                    break
                job = cluster.admin.reshard("raw", shards.pop(0))
            picked = torch.randint(0, len(known), (64, 3), generator=generator)
            likes = (worth[picked].sum(1) > 0).float()
            scores = over(rows(known[picked]).sum(1)).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, likes)
            dense.zero_grad()
            loss.backward()
            dense.step()
            losses.append(loss.item())
        if steps is None:
            assert [job.state for job in cluster.admin.jobs()] == ["done", "done"]
            assert client.table("raw").survey().residents > 1_000
    return losses


def test_losses_are_the_same_digits_while_raw_ids_move():
    moved = train(None)
    assert STEPS_BEFORE < len(moved) < STEPS_MAX
    assert train(len(moved)) == moved
