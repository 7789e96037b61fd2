#!/usr/bin/env python3
"""Times torch.nn.EmbeddingBag on the ids of gpu_lookup_bench and gpu_update_bench, on the same GPU,
and prints how many times as long it takes.

    mkdir ids
    gpu_lookup_bench --write-ids ids --json lookup.json
    gpu_update_bench --write-ids ids --json update.json
    bench/gpu/embedding_bag.py ids lookup.json update.json

One EmbeddingBag (mode sum) per table, eager, as in a model. A lookup is the forward pass of all
tables; an update is forward, backward and the optimizer's step with sparse gradients, so it stands
beside our "with lookup, graph". Times are medians of rounds by CUDA events, warmed up. Exit 3: no
PyTorch here, or no GPU that it sees. Covered by bench/gpu/programs_test.py.
"""

import argparse
import json
import statistics
import sys
from array import array
from pathlib import Path

NO_GPU = 3
REPEATS = 8


def read_workloads(folder):
    """{name: workload}, each with its ids as a flat array: table after table, bag after bag."""
    workloads = {}
    for line in (folder / "workloads.jsonl").read_text().splitlines():
        workload = json.loads(line)
        ids = array("q")
        ids.frombytes((folder / f"{workload['name']}.ids").read_bytes())
        expected = workload["tables"] * workload["bags"] * workload["bag_length"]
        if len(ids) != expected:
            sys.exit(f"{workload['name']}.ids has {len(ids)} ids, expected {expected}: "
                     "write them again into an empty folder")
        workloads[workload["name"]] = workload | {"ids": ids}
    return workloads


def rule_of(what):
    """The optimizer of one of our results, "" of a lookup, None of a ceiling or of another part."""
    if what.startswith("ceiling"):
        return None
    if what.endswith(", with lookup, graph"):
        return what.split(",")[0]
    return "" if not what.startswith(("sgd", "adam", "rowwise")) else None


def compare(results, torch_us):
    """Rows of the table: our results that have a time of torch beside them."""
    rows = []
    for result in results:
        theirs = torch_us.get((result["workload"], rule_of(result["what"])))
        if theirs is not None:
            rows.append((result["workload"], result["what"], result["us"], theirs,
                         theirs / result["us"], result["aim"]))
    return rows


def print_table(rows, title):
    print(f"{title}\n{'workload':18} {'what':36} {'us':>10} {'torch us':>10} {'ratio':>7}  aim")
    for workload, what, ours, theirs, ratio, aim in rows:
        print(f"{workload:18} {what:36} {ours:10.1f} {theirs:10.1f} {ratio:7.2f}  {aim}")


class Tables:
    """A workload's tables as a model has them."""

    def __init__(self, torch, workload):
        self.torch = torch
        shape = (workload["tables"], workload["bags"], workload["bag_length"])
        self.ids = torch.frombuffer(workload["ids"], dtype=torch.int64).reshape(shape).cuda()
        self.bags = [
            torch.nn.EmbeddingBag(workload["rows"], workload["dim"], mode="sum", sparse=True,
                                  dtype=getattr(torch, workload["element"]), device="cuda")
            for _ in range(workload["tables"])]

    def look_up(self):
        return [bag(ids) for bag, ids in zip(self.bags, self.ids)]

    def look_up_only(self):
        with self.torch.no_grad():
            self.look_up()

    def updates(self, rule):
        """A function that updates all tables once. Row-wise Adagrad is not torch's: Adagrad."""
        optim = self.torch.optim
        kind = {"sgd": optim.SGD, "adam": optim.SparseAdam, "rowwise adagrad": optim.Adagrad}[rule]
        optimizer = kind([bag.weight for bag in self.bags], lr=0.01)
        gradients = [self.torch.rand_like(out) for out in self.look_up()]

        def update():
            optimizer.zero_grad(set_to_none=True)
            self.torch.autograd.backward(self.look_up(), gradients)
            optimizer.step()
        return update


def median_us(torch, work, rounds):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        begin.record()
        for _ in range(REPEATS):
            work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / REPEATS)
    return statistics.median(times[1:])  # The first one warms up.


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", type=Path, help="the folder of --write-ids")
    parser.add_argument("results", type=Path, nargs="+", help="what the benches wrote by --json")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    workloads = read_workloads(options.ids)
    results = [r for path in options.results for r in json.loads(path.read_text())["results"]]
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError:
        print("no PyTorch here: install a build of it with CUDA", file=sys.stderr)
        return NO_GPU
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU: it needs a build with CUDA, and the driver", file=sys.stderr)
        return NO_GPU

    wanted = {(r["workload"], rule_of(r["what"])) for r in results}
    torch_us = {}
    for name, rule in sorted((n, r) for n, r in wanted if r is not None and n in workloads):
        tables = Tables(torch, workloads[name])
        work = tables.updates(rule) if rule else tables.look_up_only
        torch_us[name, rule] = median_us(torch, work, options.rounds)
        del tables, work
        torch.cuda.empty_cache()
    print_table(compare(results, torch_us),
                f"torch {torch.__version__} EmbeddingBag, on {torch.cuda.get_device_name()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
