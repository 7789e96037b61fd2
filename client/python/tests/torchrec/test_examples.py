"""The examples do what they say."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest
import torch

import embla

EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = Path(__file__).parents[4].parent / "shared" / "data"  # Beside the repository.


@pytest.fixture
def on_cluster(cluster, client, monkeypatch):
    """Let examples find the cluster, without any table."""
    monkeypatch.setenv("EMBLA_COORDINATOR", cluster.coordinator)
    monkeypatch.setenv("EMBLA_ADMIN", cluster.admin_address)
    yield
    embla.set_default_client(None)


@pytest.fixture
def census() -> Path:
    folder = Path(os.environ.get("EMBLA_DATA_DIR", DATA))
    if not (folder / "adult_train.csv").exists():
        pytest.skip(f"{folder}/adult_train.csv is absent; set EMBLA_DATA_DIR")
    return folder


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drop_tables(cluster):
    for table in cluster.admin.plan()["tables"]:
        cluster.admin.drop_table(table["spec"]["name"])


def test_every_example_has_less_than_150_lines():
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 150, path.name


def test_one_import_makes_the_difference():
    scripts = [(EXAMPLES / f"{n}.py").read_text() for n in ("torchrec_script", "swap_one_import")]
    # Without the head, which says what the script is.
    code = [script.split('"""', 2)[2].splitlines() for script in scripts]
    changed = [line for line in difflib.ndiff(*code) if re.match(r"[-+] \S", line)]
    assert changed == [
        "- from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor",
        "+ from torchrec import EmbeddingBagConfig, KeyedJaggedTensor",
        "+ from embla.torchrec import EmbeddingBagCollection",
    ]


def test_the_swapped_script_learns_what_torchrecs_does(on_cluster):
    theirs = load("torchrec_script").main()
    ours = load("swap_one_import").main()
    # The first rows differ, so the losses are near and not equal.
    assert theirs < 0.6
    assert ours == pytest.approx(theirs, abs=0.1)


def test_census_has_the_auc_of_torchrec_in_one_process(on_cluster, census):
    example = load("dlrm_census")
    local = example.main(["--data", str(census), "--epochs", "1", "--local"])
    remote = example.main(["--data", str(census), "--epochs", "1"])
    assert local > 0.88
    assert abs(local - remote) < 0.001


def nodes_with_rows(cluster) -> dict[str, int]:
    """Return on how many nodes each table has rows; every table is cut by rows."""
    tables = cluster.admin.plan()["tables"]
    assert {table["sharding"] for table in tables} == {"row_wise"}
    return {
        table["spec"]["name"]: len({part["node"] for part in table["replicas"][0]})
        for table in tables
    }


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 4])
def test_census_has_the_same_digits_on_any_number_of_shards(
    on_cluster, census, cluster, nodes, monkeypatch
):
    example = load("dlrm_census")
    expected = example.main(["--data", str(census), "--epochs", "1"])
    assert nodes_with_rows(cluster) == dict.fromkeys(example.WORDS, 2)
    embla.set_default_client(None)
    with embla.LocalCluster(nodes=nodes, devices=1) as other:
        monkeypatch.setenv("EMBLA_COORDINATOR", other.coordinator)
        monkeypatch.setenv("EMBLA_ADMIN", other.admin_address)
        assert example.main(["--data", str(census), "--epochs", "1"]) == expected
        # The smallest table has three rows.
        expected_nodes = dict.fromkeys(example.WORDS, nodes) | {"sex": min(nodes, 3)}
        assert nodes_with_rows(other) == expected_nodes
        embla.get_default_client().close()
        embla.set_default_client(None)


def test_census_resumes_as_if_it_had_not_stopped(on_cluster, census, cluster, tmp_path):
    example = load("dlrm_census")
    arguments = ["--data", str(census)]
    expected = example.main([*arguments, "--epochs", "2"])
    arguments += ["--checkpoint", str(tmp_path / "census")]
    for epochs in ("1", "2", "2"):
        drop_tables(cluster)
        embla.get_default_client().refresh_plan()
        resumed = example.main([*arguments, "--epochs", epochs])
    assert resumed == expected


def run_two_ranks(example: str, *arguments: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(EXAMPLES / f"{example}.py"), *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def train_and_resume_with_two_ranks(cluster, example: str, *arguments: str, epochs: int) -> str:
    """Stop after the first epoch, lose the tables, go on; return what is printed at the end."""
    first = run_two_ranks(example, *arguments, "--epochs", "1")
    assert "epoch 0: 100%" in first.stderr
    drop_tables(cluster)
    resumed = run_two_ranks(example, *arguments, "--epochs", str(epochs))
    assert "epoch 0" not in resumed.stderr
    assert f"epoch {epochs - 1}: 100%" in resumed.stderr
    return resumed.stdout


@pytest.mark.slow
def test_census_resumes_under_torchrun_with_two_ranks(on_cluster, census, cluster, tmp_path):
    arguments = ["--data", str(census), "--checkpoint", str(tmp_path / "census")]
    printed = train_and_resume_with_two_ranks(cluster, "dlrm_census", *arguments, epochs=2)
    assert float(re.search(r"test AUC (\S+)", printed)[1]) > 0.88


@pytest.mark.slow
def test_census_without_a_checkpoint_under_torchrun_with_two_ranks(on_cluster, census):
    printed = run_two_ranks("dlrm_census", "--data", str(census), "--epochs", "1").stdout
    assert float(re.search(r"test AUC (\S+)", printed)[1]) > 0.88


@pytest.fixture
def threads_of_torch():
    """Restores the number of threads that an example sets."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def check_plot(path):
    """It is a PNG file that can be decoded, and not all of one colour."""
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = matplotlib.image.imread(path)
    assert min(pixels.shape[:2]) > 300
    assert pixels[..., :3].std() > 0.01


@pytest.mark.parametrize("options", [[], ["--compile", "aot_eager"]], ids=["eager", "compiled"])
def test_losses_are_the_same_digits_while_rows_move(threads_of_torch, options, tmp_path):
    torch._dynamo.reset()
    example = load("reshard_live")
    arguments = ["--rows", "20000", *options]
    moved = example.main(["--steps", "200", "--plot", str(tmp_path / "moves.png"), *arguments])
    check_plot(tmp_path / "moves.png")
    phases = {line["phase"] for line in moved}
    assert {"2 nodes", "2 -> 4 nodes", "4 -> 3 nodes"} <= phases
    still = example.main(["--steps", str(len(moved)), "--no-moves", *arguments])
    assert {line["phase"] for line in still} == {"2 nodes"}
    assert [line["loss"] for line in moved] == [line["loss"] for line in still]
    assert moved[-1]["loss"] < moved[0]["loss"]


@pytest.mark.parametrize("has_matplotlib", [True, False])
def test_losses_and_pauses_are_plotted(tmp_path, monkeypatch, has_matplotlib):
    if not has_matplotlib:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    lines = [
        {"step": step, "loss": 0.5, "ms": 1.0, "phase": phase}
        for step, phase in enumerate(["2 nodes", "2 -> 4 nodes", "4 nodes"])
    ]
    path = load("reshard_live").plot(lines, tmp_path / "moves.png")
    if has_matplotlib:
        check_plot(path)
    else:
        assert path.read_text().splitlines()[:2] == ["step,loss,ms,phase", "0,0.5,1.0,2 nodes"]


@pytest.fixture
def clicks(tmp_path) -> tuple[Path, Path]:
    """Files in Criteo's format whose labels follow one integer and the oddness of two words."""
    generator = torch.Generator().manual_seed(0)
    paths = (tmp_path / "train.txt", tmp_path / "test.txt")
    for path, count in zip(paths, (16_384, 2_048), strict=True):
        numbers = torch.randint(-2, 50, (count, 13), generator=generator).tolist()
        words = torch.randint(0, 200, (count, 26), generator=generator).tolist()
        lines = []
        for integers, categories in zip(numbers, words, strict=True):
            label = int(categories[0] % 2 + categories[7] % 2 + (integers[2] > 25) >= 2)
            shown = [f"{word * 7919 + 1:08x}" for word in categories]
            integers[5], shown[11] = "", ""
            lines.append("\t".join(map(str, [label, *integers, *shown])))
        path.write_text("\n".join(lines) + "\n")
    return paths


def test_lines_of_criteo_are_parsed():
    example = load("dlrm_criteo")
    integers, words = ["-2", "", "7"] + ["0"] * 10, ["", "0000000a", "ffffffff"] + ["1"] * 23
    label, numbers, ids = example.parse("\t".join(["1", *integers, *words]) + "\n", rows=100)
    assert (label, numbers[:3]) == (1.0, [0.0, 0.0, 7.0])
    assert ids[:3] == [0, 11, 1 + 0xFFFFFFFF % 99]
    with pytest.raises(ValueError, match="3 fields, not 40"):
        example.parse("1\t2\t3\n", rows=100)


def test_criteo_learns_what_is_planted_and_resumes(on_cluster, clicks, cluster, tmp_path):
    example = load("dlrm_criteo")
    train, test = map(str, clicks)
    arguments = [train, "--test", test, "--rows", "2000", "--batch", "256"]
    expected = example.main([*arguments, "--epochs", "3"])
    assert expected > 0.9
    arguments += ["--checkpoint", str(tmp_path / "criteo")]
    for epochs in ("2", "3", "3"):
        drop_tables(cluster)
        resumed = example.main([*arguments, "--epochs", epochs])
    assert resumed == expected


@pytest.mark.slow
def test_criteo_resumes_under_torchrun_with_two_ranks(on_cluster, clicks, cluster, tmp_path):
    arguments = [str(clicks[0]), "--test", str(clicks[1]), "--rows", "2000", "--batch", "256"]
    arguments += ["--checkpoint", str(tmp_path / "criteo")]
    printed = train_and_resume_with_two_ranks(cluster, "dlrm_criteo", *arguments, epochs=3)
    assert float(re.search(r"test AUC (\S+)", printed)[1]) > 0.9


@pytest.mark.parametrize("staleness", [0, 1])
def test_two_tower_comes_near_the_planted_truth(on_cluster, staleness):
    result, best = load("two_tower").main(["--staleness", str(staleness)])
    assert best > 0.85
    assert result > best - 0.05


@pytest.mark.parametrize("options", [[], ["--sync"]], ids=["each", "sync"])
def test_two_tower_resumes_as_if_it_had_not_stopped(on_cluster, cluster, options, tmp_path):
    example = load("two_tower")
    arguments = ["--count", "40000", *options]
    expected = example.main([*arguments, "--epochs", "2"])
    arguments += ["--checkpoint", str(tmp_path / "two_tower")]
    # The last run has no epoch left, though steps of new tables with --sync begin with 0.
    for epochs in ("1", "2", "2"):
        drop_tables(cluster)
        resumed = example.main([*arguments, "--epochs", epochs])
    assert resumed == expected


@pytest.mark.slow
def test_two_tower_resumes_under_torchrun_with_two_ranks(on_cluster, cluster, tmp_path):
    arguments = ["--checkpoint", str(tmp_path / "two_tower")]
    printed = train_and_resume_with_two_ranks(cluster, "two_tower", *arguments, epochs=3)
    result, best = re.search(r"test AUC (\S+), best possible (\S+)", printed).groups()
    assert float(result) > float(best) - 0.05


def train_two_towers(ranks, *options):
    """Train under torchrun; return the AUC and the best possible one."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", str(ranks), str(EXAMPLES / "two_tower.py"), *options],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    result, best = re.search(r"test AUC (\S+), best possible (\S+)", done.stdout).groups()
    return float(result), float(best)


@pytest.mark.slow
def test_two_tower_with_sync_learns_the_same_with_two_ranks_as_with_one(
    on_cluster, cluster, client, tmp_path
):
    arguments = ["--sync", "--count", "40000"]
    expected, _ = load("two_tower").main([*arguments, "--epochs", "2"])
    client.refresh_plan()
    assert all(info.sync for info in client.tables())
    drop_tables(cluster)
    arguments += ["--checkpoint", str(tmp_path / "two_tower")]
    train_two_towers(2, *arguments, "--epochs", "1")
    result, _ = train_two_towers(2, *arguments, "--epochs", "2")  # Resumed.
    assert result == pytest.approx(expected, abs=0.001)


def test_two_tower_reads_ratings(on_cluster, tmp_path):
    generator = torch.Generator().manual_seed(0)
    lines = ["user,item,rating"]
    for _ in range(8_000):
        user, item = torch.randint(0, 20, (2,), generator=generator).tolist()
        lines.append(f"u{user},i{item},{5 if user % 2 == item % 2 else 1}")
    (tmp_path / "ratings.csv").write_text("\n".join(lines))
    result, _ = load("two_tower").main(["--ratings", str(tmp_path / "ratings.csv")])
    assert result > 0.95
