"""Checkpoints of two ranks: each reads, saves and loads its share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import embla

RANK = Path(__file__).parent / "rank_of_checkpoint.py"
ANY_IDS = np.arange(-15, 16) * ((1 << 58) + 99)


@pytest.fixture
def ranks(cluster, client, monkeypatch):
    """Run a verb in two ranks over three tables with rows and state of their own."""
    monkeypatch.setenv("EMBLA_COORDINATOR", cluster.coordinator)

    def run(verb: str, folder: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             str(RANK), verb, str(folder)],
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]

    return run


def create_tables(cluster, client):
    for name, rows, zch in (("odd", 51, None), ("one", 1, None), ("any", 1000, embla.Zch())):
        spec = embla.TableSpec(name, rows, 8, optimizer=embla.Adam(lr=0.1), zch=zch)
        cluster.admin.create_table(spec, "row_wise")
    client.refresh_plan()


def write(client, seed):
    rng = np.random.default_rng(seed)
    for name, ids in (("odd", np.arange(51)), ("one", np.arange(1)), ("any", ANY_IDS)):
        rows = rng.random((len(ids), 8), dtype=np.float32)
        client.write_rows(name, ids, rows, rng.random((len(ids), 17), dtype=np.float32))


def bits(client):
    return {
        (name, id): (rows.weights[i].tobytes(), rows.state[i].tobytes())
        for name in ("odd", "one", "any")
        for rows in client.table(name).scan(with_state=True)
        for i, id in enumerate(rows.ids.tolist())
    }


@pytest.mark.slow
@pytest.mark.parametrize("verbs", [("save", "load"), ("dtensor", "state")], ids="-".join)
def test_two_ranks_save_and_load_their_shares(cluster, client, ranks, tmp_path, verbs):
    create_tables(cluster, client)
    write(client, 1)
    expected = bits(client)
    assert len(expected) == 51 + 1 + 31
    first, second = verbs
    ranks(first, tmp_path / "checkpoint")
    write(client, 2)
    ranks(second, tmp_path / "checkpoint")
    if first == "save":
        assert bits(client) == expected
    else:  # DTensors of weights only.
        weights = {key: weights for key, (weights, _) in bits(client).items()}
        assert weights == {key: weights for key, (weights, _) in expected.items()}
