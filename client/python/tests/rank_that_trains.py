"""A rank of test_trainer_deaths.py: ``rank_that_trains.py COORDINATOR TABLE RANK RANKS DONE``.

DONE is how many steps the process before it has reported. Trains up to each step that a line of the
standard input names, and reports each step by a line; the end of the input ends it.
"""

from __future__ import annotations

import sys

import numpy as np

import embla

ROWS, DIM = 3000, 8


def contribution(table: str, step: int, rank: int) -> embla.Gradient:
    """Return what a rank has for a step: some ids, each several times, or none."""
    rng = np.random.default_rng((step, rank))
    ids = rng.integers(0, ROWS, 400 * int(rng.integers(0, 4)))
    return embla.Gradient(table, ids, rng.normal(size=(len(ids), DIM)).astype(np.float32))


def main() -> None:
    coordinator, table = sys.argv[1:3]
    rank, ranks, done = map(int, sys.argv[3:])
    options = {"trainer": f"{table}.rank{rank}", "rank": rank, "ranks": ranks, "timeout": 120.0}
    with embla.connect(coordinator, retry_budget_ratio=1.0, **options) as client:
        client.join_steps([table], timeout=120.0)
        for line in sys.stdin:
            for step in range(done, int(line)):
                client.update([contribution(table, step, rank)], step=step)
                done = step + 1
                print(step, flush=True)


if __name__ == "__main__":
    main()
