#!/usr/bin/env python3
"""Does embla-train, as it comes, rank as well as scikit-learn's logistic regression?

    beside_regression.py BIN_DIR VENV_DIR

On the census data (EMBLA_DATA_DIR, default ../shared/data) and on generated wide sparse examples,
each in 5 folds: mean AUC of embla-train on a cluster of real processes at least that of the
regression - 0.002. The regression sees the same features, one-hot: text as it is, numbers with more
than 100 values by half powers of two. scikit-learn comes from the package index into VENV_DIR; exit
code 77, skipped, where the index cannot be reached.
"""

import csv
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster import Cluster
from wide_sparse import wide_sparse_rows

FOLDS = 5
MARGIN = 0.002
SKIPPED = 77
PACKAGES = ["scikit-learn==1.9.1", "numpy", "scipy"]
WIDE_EXAMPLES = 30000
WIDE_SEED = 20


def enter_environment(folder):
    """Runs this script again with the Python of a virtual environment that has scikit-learn."""
    python = folder / "bin" / "python"
    if Path(sys.prefix) == folder:
        return
    if not (folder / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        install = [python, "-m", "pip", "install", "--quiet", *PACKAGES]
        if subprocess.run(install, check=False).returncode != 0:
            print("SKIPPED: the package index cannot be reached, so there is nothing to compare to")
            sys.exit(SKIPPED)
        (folder / "made").touch()
    os.execv(python, [str(python), *sys.argv])


def bucket(number):
    if number == 0.0:
        return "0"
    exponent = math.floor(2.0 * math.log2(abs(number)))
    return f"{'-' if number < 0.0 else ''}{exponent}"


def features(rows):
    """The rows' columns as text, numbers of many values in buckets."""

    def column(cells):
        try:
            numbers = [float(cell) if cell else None for cell in cells]
        except ValueError:
            return cells
        if len(set(cells)) <= 100:
            return cells
        return ["" if number is None else bucket(number) for number in numbers]

    return list(zip(*(column(list(cells)) for cells in zip(*(row[1:] for row in rows)))))


def regression_auc(train, test):
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=1000))
    model.fit([row for row, _ in train], [label for _, label in train])
    scores = model.decision_function([row for row, _ in test])
    return roc_auc_score([label for _, label in test], scores)


def write(path, header, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def compare(name, table, cluster, work):
    """Prints both means and returns whether embla-train's is as good."""
    header, rows = table[0], table[1:]
    encoded = [(row, int(raw[0])) for row, raw in zip(features(rows), rows)]
    own, regression, epochs = [], [], []
    for fold in range(FOLDS):
        held_out = [i % FOLDS == fold for i in range(len(rows))]
        parts = {
            "train": [i for i, out in enumerate(held_out) if not out],
            "test": [i for i, out in enumerate(held_out) if out],
        }
        for part, members in parts.items():
            write(work / f"{part}.csv", header, [rows[i] for i in members])
        report = cluster.train(
            f"{name}{fold}", "--train", work / "train.csv", "--test", work / "test.csv"
        )
        own.append(report["auc"])
        epochs.append(report["best_epoch"])
        regression.append(regression_auc(*([encoded[i] for i in m] for m in parts.values())))
    mean_own, mean_regression = sum(own) / FOLDS, sum(regression) / FOLDS
    columns = sum(len(set(cells)) for cells in zip(*(row for row, _ in encoded)))
    print(
        f"{name}: {len(rows)} examples, {columns} one-hot columns, {FOLDS} folds: mean AUC of "
        f"embla-train {mean_own:.4f}, of logistic regression {mean_regression:.4f} "
        f"(folds {' '.join(f'{auc:.4f}' for auc in own)}; best epochs {epochs})",
        flush=True,
    )
    return mean_own >= mean_regression - MARGIN


def main():
    bin_dir, environment = Path(sys.argv[1]), Path(sys.argv[2]).absolute()
    enter_environment(environment)
    tables = {"wide": list(wide_sparse_rows(WIDE_EXAMPLES, WIDE_SEED))}
    census = Path(os.environ.get("EMBLA_DATA_DIR", "../shared/data")) / "adult_train.csv"
    if census.exists():
        with open(census, newline="") as file:
            tables["census"] = list(csv.reader(file))
    else:
        print(f"NOT COMPARED: {census} is absent; set EMBLA_DATA_DIR")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        with Cluster(bin_dir, work) as cluster:
            good = [compare(name, table, cluster, work) for name, table in tables.items()]
    if not all(good):
        sys.exit(f"FAILED: embla-train is more than {MARGIN} below the regression")


if __name__ == "__main__":
    main()
