"""The output of ``embla table export`` is a checkpoint for PyTorch, and is imported unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.numpy import load_file

import embla

ROWS, DIM = 3000, 12
WEIGHTS = "embedding_bags.users.weight"


@pytest.fixture
def embla_verb(cluster):
    program = embla.local_cluster.find_program("embla")

    def run(*arguments: str) -> subprocess.CompletedProcess:
        addresses = ["--coordinator", cluster.coordinator, "--admin", cluster.admin_address]
        command = [program, *arguments, *addresses]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def trained(cluster):
    """A table with Adam's state, and what it holds."""
    spec = embla.TableSpec("users", ROWS, DIM, optimizer=embla.Adam(lr=0.1))
    cluster.admin.create_table(spec, "row_wise")
    rng = np.random.default_rng(7)
    ids = np.arange(ROWS)
    with cluster.connect() as client:
        for _ in range(3):
            some = rng.integers(0, ROWS, 500)
            gradients = rng.standard_normal((500, DIM), dtype=np.float32)
            client.update([embla.Gradient("users", ids=some, gradients=gradients)])
        yield client, ids, client.read_rows("users", ids), client.read_state("users", ids)
    cluster.admin.drop_table("users")


def test_torch_reads_an_export(embla_verb, trained, tmp_path):
    _, _, weights, state = trained
    assert embla_verb("table", "export", "users", str(tmp_path / "users")).returncode == 0
    loaded = {
        WEIGHTS: torch.empty(ROWS, DIM),
        f"{WEIGHTS}.steps": torch.empty(ROWS),
        f"{WEIGHTS}.momentum1": torch.empty(ROWS, DIM),
        f"{WEIGHTS}.momentum2": torch.empty(ROWS, DIM),
    }
    if not hasattr(dcp, "HuggingFaceStorageReader"):
        pytest.skip("this version of torch reads no safetensors as a checkpoint")
    reader = dcp.HuggingFaceStorageReader(str(tmp_path / "users"))
    dcp.load(loaded, storage_reader=reader)
    assert np.array_equal(loaded[WEIGHTS].numpy(), weights)
    assert np.array_equal(loaded[f"{WEIGHTS}.steps"].numpy(), state[:, 0])
    assert np.array_equal(loaded[f"{WEIGHTS}.momentum1"].numpy(), state[:, 1 : 1 + DIM])
    assert np.array_equal(loaded[f"{WEIGHTS}.momentum2"].numpy(), state[:, 1 + DIM :])
    (file,) = (tmp_path / "users").iterdir()
    assert np.array_equal(load_file(file)[WEIGHTS], weights)


@pytest.fixture
def small_files(embla_verb, trained, tmp_path):
    """An export in files of 135 rows, and its weights."""
    _, _, weights, _ = trained
    folder = tmp_path / "users"
    row_bytes = 4 * (DIM + 1 + 2 * DIM)
    size = str(135 * row_bytes)
    exported = embla_verb("table", "export", "users", str(folder), "--file-size", size)
    assert exported.returncode == 0, exported.stderr
    assert len(list(folder.iterdir())) == -(-ROWS // 135)
    return folder, weights


def test_torch_reads_an_export_of_several_files(small_files):
    folder, weights = small_files
    if not hasattr(dcp, "HuggingFaceStorageReader"):
        pytest.skip("this version of torch reads no safetensors as a checkpoint")
    loaded = {WEIGHTS: torch.empty(ROWS, DIM)}
    dcp.load(loaded, storage_reader=dcp.HuggingFaceStorageReader(str(folder)))
    assert np.array_equal(loaded[WEIGHTS].numpy(), weights)


def test_two_ranks_read_an_export_of_several_files(small_files, tmp_path):
    folder, weights = small_files
    if not hasattr(dcp, "HuggingFaceStorageReader"):
        pytest.skip("this version of torch reads no safetensors as a checkpoint")
    np.save(tmp_path / "weights.npy", weights)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(Path(__file__).parent / "rank_of_row_files.py"), str(folder), WEIGHTS,
         str(tmp_path / "weights.npy")],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.splitlines()) == ["rank 0 has 1500 rows", "rank 1 has 1500 rows"]


def test_an_export_comes_back_under_another_sharding(cluster, embla_verb, trained, tmp_path):
    client, ids, weights, state = trained
    assert embla_verb("table", "export", "users", str(tmp_path / "users")).returncode == 0
    spec = embla.TableSpec("again", ROWS, DIM, optimizer=embla.Adam(lr=0.1))
    cluster.admin.create_table(spec, "column_wise")
    try:
        folder = str(tmp_path / "users")
        imported = embla_verb("table", "import", "again", folder, "--tensor", WEIGHTS)
        assert imported.returncode == 0, imported.stderr
        assert np.array_equal(client.read_rows("again", ids), weights)
        assert np.array_equal(client.read_state("again", ids), state)
    finally:
        cluster.admin.drop_table("again")


def test_a_safetensors_file_of_another_program_is_imported(embla_verb, trained, tmp_path):
    from safetensors.numpy import save_file

    client, ids, _, state = trained
    weights = np.random.default_rng(8).standard_normal((ROWS, DIM)).astype(np.float16)
    save_file({"w": weights}, tmp_path / "model.safetensors")
    assert embla_verb("table", "import", "users", str(tmp_path), "--tensor", "w").returncode == 0
    assert np.array_equal(client.read_rows("users", ids), weights.astype(np.float32))
    assert np.array_equal(client.read_state("users", ids), state)
