"""A table grows and shrinks under a model that trains: 2 nodes, 4, then 3.

    python reshard_live.py --plot reshard_live.png

Starts a cluster of its own. The plot shows losses and how long each step took; without matplotlib
the columns go to a CSV file. --no-moves: rows stay where they are, and losses have the same digits.
"""

import argparse
import csv
import itertools
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

import embla
import embla.torch

TABLE, DIM, BATCH = "reshard_live", 32, 256


class Model(nn.Module):
    """Says from the rows of two ids whether what they are worth together is above zero."""

    def __init__(self, client: embla.Client):
        super().__init__()
        self.rows = embla.torch.Embedding(client, TABLE)
        self.over = nn.Sequential(nn.Linear(2 * DIM, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.over(self.rows(ids).flatten(1)).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)


class Moves:
    """New nodes and reshards in a thread of their own, beside the training loop."""

    def __init__(self, cluster: embla.LocalCluster):
        self.cluster = cluster
        self.phase = "2 nodes"
        self.thread: Future | None = None

    def start(self) -> None:
        self.thread = ThreadPoolExecutor(1).submit(self._run)

    def is_under_way(self) -> bool:
        return self.thread is not None and not self.thread.done()

    def _run(self) -> None:
        self.phase = "2 nodes, 2 start"
        for name in ("node3", "node4"):
            self.cluster.start_shard(name)
        for before, after in ((2, 4), (4, 3)):
            self.phase = f"{before} -> {after} nodes"
            job = self.cluster.admin.reshard(TABLE, after)
            done = self.cluster.admin.wait(job, timeout=120)
            self.phase = f"{after} nodes"
            tqdm.write(f"{before} -> {after} nodes: {done.units_moved} units, "
                       f"{done.bytes_moved / 1e6:.1f} MB")  # fmt: skip


def train(model: nn.Module, moves: Moves | None, rows: int, steps: int) -> list[dict]:
    """Train for so many steps, and on until nothing moves; return a line per step."""
    generator = torch.Generator().manual_seed(1)
    worth = torch.randn(rows, generator=generator)
    dense = torch.optim.Adam(model.parameters(), lr=1e-3)
    lines: list[dict] = []
    with tqdm(total=steps) as bar:
        for step in itertools.count():
            if moves and step == steps // 4:
                moves.start()
            if step >= steps and not (moves and moves.is_under_way()):
                return lines
            phase = moves.phase if moves else "2 nodes"
            ids = torch.randint(0, rows, (BATCH, 2), generator=generator)
            start = time.perf_counter()
            loss = model(ids, (worth[ids].sum(1) > 0).float())
            dense.zero_grad()
            loss.backward()
            dense.step()
            lines.append({"step": step, "loss": loss.item(),
                          "ms": (time.perf_counter() - start) * 1000, "phase": phase})  # fmt: skip
            bar.total = max(bar.total, step + 1)
            bar.update()
            bar.set_postfix(loss=f"{loss.item():.4f}", phase=phase, refresh=False)


def plot(lines: list[dict], path: Path) -> Path:
    """Draw losses and pauses; return the path of the PNG, or of a CSV without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        path = path.with_suffix(".csv")
        print(f"matplotlib is not installed, so there is no plot: columns go to {path}")
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)
        return path
    figure = Figure(figsize=(10, 6))
    losses, pauses = figure.subplots(2, sharex=True)
    losses.plot([line["loss"] for line in lines], linewidth=0.5)
    losses.set_ylabel("loss")
    pauses.semilogy([line["ms"] for line in lines], linewidth=0.5)
    pauses.set(xlabel="step", ylabel="milliseconds of a step")
    for number, (phase, part) in enumerate(itertools.groupby(lines, lambda line: line["phase"])):
        steps = [line["step"] for line in part]
        pauses.axvspan(steps[0], steps[-1] + 1, color=f"C{number}", alpha=0.15)
        losses.axvspan(steps[0], steps[-1] + 1, color=f"C{number}", alpha=0.15, label=phase)
    figure.legend(loc="upper center", ncols=6)
    figure.savefig(path, bbox_inches="tight")
    return path


def main(arguments: list[str] | None = None) -> list[dict]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4_000, help="more while rows move")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--no-moves", action="store_true")
    parser.add_argument("--compile", help="a backend of torch.compile, such as inductor")
    parser.add_argument("--plot", type=Path, help="a PNG file")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # More would wait for each other: the cluster is on this machine, too.
    with embla.LocalCluster(nodes=2, devices=1) as cluster, cluster.connect() as client:
        spec = embla.TableSpec(TABLE, options.rows, DIM, optimizer=embla.Adagrad(lr=0.1),
                               init=embla.Normal(0.0, 0.1), row_granules=120)  # fmt: skip
        cluster.admin.create_table(spec, "row_wise")
        model = Model(client)
        if options.compile:
            model = torch.compile(model, fullgraph=True, backend=options.compile)
        moves = None if options.no_moves else Moves(cluster)
        lines = train(model, moves, options.rows, options.steps)
        if moves:
            moves.thread.result()
    longest = max(lines[1:], key=lambda line: line["ms"])  # The first step compiles.
    print(f"loss {lines[-1]['loss']:.4f} after {len(lines)} steps, the longest pause "
          f"{longest['ms']:.1f} ms at step {longest['step']} ({longest['phase']})")  # fmt: skip
    if options.plot:
        print(f"plotted to {plot(lines, options.plot)}")
    return lines


if __name__ == "__main__":
    main()
