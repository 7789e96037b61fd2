"""Effects of a process on modules: it ends with calls on their way, and it trains for long."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from small_model import Model, batch

import embla.torch

BEGIN = """
    import torch, embla.torch
    cluster = embla.LocalCluster(nodes=1, devices=1)
    cluster.admin.create_table(embla.TableSpec("t", 100000, 64))
    client = cluster.connect()
    rows = embla.torch.Embedding(client, "t", update_mode="async", in_flight_max=8)
    ids = torch.arange(20000)
"""
CALLS = {
    "updates": """
    for _ in range(4):
        rows(ids).sum().backward()
    """,
    "prefetches": """
    rows(ids).sum().backward()
    rows(ids).sum().backward()
    for first in range(4):
        rows.prefetch(ids + first)
    """,
}


@pytest.mark.parametrize("last_words", ["", "raise SystemExit(0)", "client.close()"])
@pytest.mark.parametrize("calls", CALLS)
def test_an_exit_with_calls_in_flight_is_clean(calls, last_words):
    code = textwrap.dedent(BEGIN) + textwrap.dedent(CALLS[calls]) + last_words
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_memory_stays_flat_over_10000_steps(cluster, create_tables, mode):
    create_tables()
    batches = [batch(seed) for seed in range(64)]
    # The client itself: one that records keeps every call.
    with cluster.connect() as client:
        model = Model(client, update_mode=mode)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def train(steps: int) -> None:
            for step in range(steps):
                if mode == "async":
                    model.rows.prefetch(*batches[(step + 1) % 64])
                optimizer.zero_grad()
                model(*batches[step % 64]).square().mean().backward()
                optimizer.step()
            embla.torch.flush(model)

        train(1_000)
        before = resident_bytes()
        train(10_000)
        assert resident_bytes() - before < 5 << 20
        assert model.rows.site.step == 11_000
        if mode == "async":
            assert model.rows.site.prefetch_hits >= 10_000
