"""Checkpoints of tables of any ids, without TorchRec."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import embla
import embla.checkpoint
import embla.torch
from embla.checkpoint import remote_tensor

OPTIMIZERS = {
    "sgd": embla.SGD(lr=0.1),
    "rowwise_adagrad": embla.RowwiseAdagrad(lr=0.1),
    "adam": embla.Adam(lr=0.1),
}
# Any 64-bit numbers, more than one chunk of them.
IDS = torch.arange(-20, 20) * ((1 << 58) + 12_345)


@pytest.fixture
def client(cluster):
    with cluster.connect() as client:
        yield client
    if "z" in {table["spec"]["name"] for table in cluster.admin.plan()["tables"]}:
        cluster.admin.drop_table("z")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Cut every table into several chunks."""
    monkeypatch.setattr(remote_tensor, "CHUNK_BYTES", 7 * 8 * 4)


def make_model(cluster, client, optimizer, **zch):
    spec = embla.TableSpec("z", 1000, 8, optimizer=OPTIMIZERS[optimizer], zch=embla.Zch(**zch))
    cluster.admin.create_table(spec)
    client.refresh_plan()
    torch.manual_seed(1)
    return nn.ModuleDict({"bag": embla.torch.EmbeddingBag(client, "z"), "dense": nn.Linear(8, 1)})


def train(model, seeds):
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        ids = IDS[torch.randint(0, 30, (8, 3), generator=generator)]
        model["dense"](model["bag"](ids)).square().sum().backward()


def bits(client):
    """Return the ids that have rows, ascending, and their rows and state."""
    parts = [(r.ids, r.weights, r.state) for r in client.table("z").scan(with_state=True)]
    ids, weights, state = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = ids.argsort()
    return ids[order], weights[order], state[order]


def assert_equal(one, other):
    for name, mine, theirs in zip(("ids", "weights", "state"), one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


@pytest.mark.parametrize("form", ["dcp", "safetensors"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_table_of_any_ids_comes_back_whole(cluster, client, tmp_path, form, optimizer):
    if form == "safetensors":
        pytest.importorskip("safetensors")
        save, load = embla.checkpoint.save_safetensors, embla.checkpoint.load_safetensors
    else:
        save, load = embla.checkpoint.save, embla.checkpoint.load
    model = make_model(cluster, client, optimizer)
    train(model, range(4))
    saved = bits(client)
    assert 20 < len(saved[0]) < 40
    save(model, tmp_path)
    cluster.admin.drop_table("z")
    client.refresh_plan()
    # An admission that would want three touches before an id gets a row.
    resumed = make_model(cluster, client, optimizer, admission="count", admission_count=3)
    load(resumed, tmp_path)
    assert_equal(bits(client), saved)
    assert resumed["bag"].site.step == 4
    assert torch.equal(resumed["dense"].weight, model["dense"].weight)


def test_a_resumed_run_over_any_ids_has_the_bits_of_one_that_was_not_stopped(
    cluster, client, tmp_path
):
    model = make_model(cluster, client, "adam")
    train(model, range(4))
    embla.checkpoint.save(model, tmp_path)
    train(model, range(4, 8))
    expected = bits(client)
    cluster.admin.drop_table("z")
    client.refresh_plan()
    resumed = make_model(cluster, client, "adam")
    embla.checkpoint.load(resumed, tmp_path)
    train(resumed, range(4, 8))
    assert_equal(bits(client), expected)


def test_stock_tools_read_the_rows_of_any_ids(cluster, client, tmp_path):
    model = make_model(cluster, client, "adam")
    train(model, range(2))
    embla.checkpoint.save(model, tmp_path / "dcp")
    dcp_to_torch_save(tmp_path / "dcp", tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    ids = state["model"]["bag.weight.ids"].numpy()
    order = ids.argsort()
    rows = state["model"]["bag.weight"].numpy()[order]
    moments = state["optimizer"]["state"]["bag.weight"]["z.state"].numpy()[order]
    assert_equal((ids[order], rows, moments), bits(client))


def test_a_table_of_any_ids_that_has_none_yet_is_saved(cluster, client, tmp_path):
    model = make_model(cluster, client, "adam")
    embla.checkpoint.save(model, tmp_path / "dcp")
    embla.checkpoint.load(model, tmp_path / "dcp")
    embla.checkpoint.save_safetensors(model, tmp_path / "files")
    embla.checkpoint.load_safetensors(model, tmp_path / "files")
    assert len(bits(client)[0]) == 0
    assert embla.checkpoint.state_dict(model)["bag.weight"].shape == (0, 8)


def test_a_checkpoint_of_numbered_rows_is_refused_by_a_table_of_any_ids(cluster, client, tmp_path):
    saved = {"model": {"bag.weight": torch.rand(50, 8), "dense.weight": torch.zeros(1, 8)}}
    dcp.save(saved, checkpoint_id=tmp_path)
    model = make_model(cluster, client, "sgd")
    with pytest.raises(RuntimeError, match=r"lacks model\.bag\.weight\.ids"):
        embla.checkpoint.load(model, tmp_path)
