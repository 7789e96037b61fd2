#!/usr/bin/env python3
"""What does an example cost embla-train and its servers, beside a plain loop over the same data?

    bench/train_cost.py [--build build/release] [--rounds 3]

CPU seconds of training: of embla-train (2 trainers, defaults) and of a coordinator and two nodes of
two devices on loopback, against those of train_loop_bench, one thread without a service. On the
census data (EMBLA_DATA_DIR, default ../shared/data) and on generated wide sparse examples; the
median over the rounds of the ratio counts. Neither validates meanwhile: the loop does not, either.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools" / "train" / "testing"))
from cluster import Cluster
from wide_sparse import wide_sparse_rows

EPOCHS = {"census": 12, "wide": 4}
WIDE_EXAMPLES = 50000


def plain(loop, files, epochs):
    command = [loop, *files, str(epochs)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def through_cluster(cluster, prefix, files, epochs):
    before = cluster.server_cpu_seconds()
    report = cluster.train(
        prefix,
        "--train",
        files[0],
        "--test",
        files[1],
        "--epochs",
        epochs,
        "--trainers",
        2,
        "--validation-fraction",
        0,
    )
    return report, cluster.server_cpu_seconds() - before


def measure(name, files, rounds, loop, cluster):
    ratios = []
    for round_number in range(rounds):
        base = plain(loop, files, EPOCHS[name])
        report, servers = through_cluster(cluster, f"{name}{round_number}", files, EPOCHS[name])
        micros = 1e6 / report["examples"]
        base_micros = 1e6 * base["cpu_seconds"] / base["examples"]
        ratios.append((report["cpu_seconds"] + servers) * micros / base_micros)
        print(
            f"{name}: plain loop {base_micros:.2f} us per example, AUC {base['auc']:.4f}; "
            f"embla-train {report['cpu_seconds'] * micros:.2f} + servers {servers * micros:.2f} "
            f"us, AUC {report['auc']:.4f}: {ratios[-1]:.2f} x",
            flush=True,
        )
    print(f"{name}: median {statistics.median(ratios):.2f} x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    data = Path(os.environ.get("EMBLA_DATA_DIR", "../shared/data"))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        inputs = {}
        if (data / "adult_train.csv").exists():
            inputs["census"] = [data / "adult_train.csv", data / "adult_test.csv"]
        header, *rows = wide_sparse_rows(WIDE_EXAMPLES, seed=1)
        inputs["wide"] = [work / "train.csv", work / "test.csv"]
        cut = len(rows) * 4 // 5
        for path, part in zip(inputs["wide"], (rows[:cut], rows[cut:])):
            with open(path, "w", newline="") as file:
                csv.writer(file).writerows([header, *part])
        with Cluster(options.build / "bin", work) as cluster:
            for name, files in inputs.items():
                measure(
                    name,
                    files,
                    options.rounds,
                    options.build / "bench" / "train_loop_bench",
                    cluster,
                )


if __name__ == "__main__":
    main()
