#!/usr/bin/env python3
"""Measures systems in turn, round by round, and prints their medians beside each other.

bench/peers/run.sh starts it. Each system is a command that is started once per workload, with the
workload's shape as last arguments: TABLES ROWS DIM IDS BAG DTYPE EXPONENT. The system verifies its
results, says READY, and then answers each line `CASE OPERATION IN_FLIGHT SECONDS` by one line of
JSON: rows_per_second and p50_ms. A round asks every system for every case, and begins with another
system than the round before. Covered by bench/peers/peers_test.py.
"""

import argparse
import contextlib
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

EMBLA = "embla"
PEERS = ["ps-lite", "torch-rpc", "redis", "torchrec"]
QUICK_FACTOR = 10  # By so much tables are smaller with --quick.
QUICK_SECONDS, SECONDS = 0.5, 2.0
STOP_SECONDS = 20
COLUMNS = [("workload", 8), ("operation", 16), ("in flight", 10), ("M rows/s", 9), ("p50 ms", 8)]


@dataclass(frozen=True)
class Workload:
    """Tables of equal size, and what one request asks of each.

    Tables of production models have many sizes, and bags many lengths; embla-bench knows one size
    and one length, so the other systems are given these, too.
    """

    text: str
    tables: int
    rows: int
    dim: int
    ids: int
    bag: int = 1
    dtype: str = "fp32"
    exponent: float = 0.0  # Exponent of Zipf's law; 0: uniform.
    cases: tuple = ()  # (operation, in flight), in the order of the table.
    peers: tuple = ()

    def arguments(self):
        sizes = [self.tables, self.rows, self.dim, self.ids, self.bag]
        return [str(value) for value in (*sizes, self.dtype, self.exponent)]

    def quick(self):
        return replace(self, rows=max(self.rows // QUICK_FACTOR, 1000))


UPDATES = ("sgd", "rowwise_adagrad")
# "step" is a training step, a lookup and then an update by row-wise Adagrad.
WORKLOADS = {
    "w1": Workload(
        "1 M rows x 64 fp32, 4096 uniform ids",
        tables=1,
        rows=1_000_000,
        dim=64,
        ids=4096,
        cases=tuple((o, n) for n in (1, 4) for o in ("lookup", *UPDATES)),
        peers=("ps-lite", "torch-rpc", "redis"),
    ),
    "w2": Workload(
        "26 tables x 500 k rows x 64 fp32, batch 2048, Zipf 1.05",
        tables=26,
        rows=500_000,
        dim=64,
        ids=2048,
        exponent=1.05,
        cases=(*((o, 1) for o in ("lookup", *UPDATES)), ("step", 1)),
        peers=("ps-lite", "torch-rpc", "torchrec"),
    ),
    "w3": Workload(
        "1 M rows x 64 fp32, 64 uniform ids",
        tables=1,
        rows=1_000_000,
        dim=64,
        ids=64,
        cases=(("lookup", 1), ("lookup", 16), ("sgd", 1)),
        peers=("ps-lite", "torch-rpc", "redis"),
    ),
    "w4": Workload(
        "500 tables x 20 k rows x 16 fp32, batch 512, bags of 3, Zipf 1.05",
        tables=500,
        rows=20_000,
        dim=16,
        ids=1536,
        bag=3,
        exponent=1.05,
        cases=(("lookup", 1), ("rowwise_adagrad", 1)),
        peers=("ps-lite",),
    ),
    "w5": Workload(
        "1 M rows x 128 bf16, 65,536 uniform ids",
        tables=1,
        rows=1_000_000,
        dim=128,
        ids=65_536,
        dtype="bf16",
        cases=(("lookup", 1),),
        peers=("ps-lite", "torch-rpc", "redis"),
    ),
}


def is_asked(system, operation, in_flight):
    """Whether a system takes part in a case, apart from its workloads."""
    if system == "redis":  # Its updates are made of two requests; only lookups go side by side.
        return operation == "lookup" or (operation == "sgd" and in_flight == 1)
    if system == "torchrec":  # Its update is part of a step.
        return operation in ("lookup", "step")
    return operation != "step"  # Made of the two others.


@dataclass(frozen=True)
class Figure:
    """One measurement."""

    rows_per_second: float
    p50_ms: float


def parse_answer(line):
    """ValueError: the line is no measurement."""
    try:
        answer = json.loads(line)
        figure = Figure(float(answer["rows_per_second"]), float(answer["p50_ms"]))
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"not a measurement: {line.strip()!r}") from error
    if not (figure.rows_per_second > 0 and figure.p50_ms > 0):
        raise ValueError(f"not positive: {line.strip()!r}")
    return figure


def step_of(lookup, update):
    """A training step, made of a lookup and an update that follows it."""
    seconds_per_row = 1 / lookup.rows_per_second + 1 / update.rows_per_second
    return Figure(1 / seconds_per_row, lookup.p50_ms + update.p50_ms)


def turns(systems, number):
    """The order of the systems in the round `number`."""
    begin = number % len(systems)
    return systems[begin:] + systems[:begin]


def median_ratio(embla, peer):
    """The median over rounds of Embla's rows per second by the peer's in the same round."""
    return statistics.median(
        e.rows_per_second / p.rows_per_second for e, p in zip(embla, peer, strict=True)
    )


def instruction_set(cpuinfo):
    """The widest vectors of the processor that /proc/cpuinfo describes."""
    flags = set()
    for line in cpuinfo.splitlines():
        if line.startswith(("flags", "Features")):
            flags |= set(line.split(":", 1)[1].split())
    known = [("avx512f", "AVX-512"), ("avx2", "AVX2"), ("sve", "SVE"), ("asimd", "NEON")]
    return next((name for flag, name in known if flag in flags), "neither AVX2 nor AVX-512")


def heading(peers):
    cells = [
        f"{name:{width}}" if i < 2 else f"{name:>{width}}"
        for i, (name, width) in enumerate(COLUMNS)
    ]
    return " ".join([*cells, *(f"{'/ ' + peer:>12}" for peer in peers)])


def table_line(workload, case, figures, peers):
    """One line of the table. `figures`: by system, one figure per round, or nothing."""
    embla = figures[EMBLA]
    rate = statistics.median(figure.rows_per_second for figure in embla)
    p50 = statistics.median(figure.p50_ms for figure in embla)
    ratios = [
        f"{median_ratio(embla, figures[peer]):12.2f}" if figures.get(peer) else f"{'-':>12}"
        for peer in peers
    ]
    operation, in_flight = case
    widths = [width for _, width in COLUMNS]
    return " ".join(
        [
            f"{workload:{widths[0]}}",
            f"{operation:{widths[1]}}",
            f"{in_flight:{widths[2]}}",
            f"{rate / 1e6:{widths[3]}.2f}",
            f"{p50:{widths[4]}.3f}",
            *ratios,
        ]
    )


class System:
    """A system that runs, for one workload."""

    def __init__(self, name, command, workload, log):
        self.name = name
        self.log = log
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                [*command, *workload.arguments()],
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Its children end with it, also where it is killed.
            )
        if self.process.stdout.readline() != "READY\n":
            self.fail("did not verify")

    def fail(self, what):
        self.end()
        tail = Path(self.log).read_text(errors="replace").splitlines()[-5:]
        sys.exit("\n".join([f"{self.name} {what}; the end of its log:", *tail]))

    def ask(self, operation, in_flight, seconds):
        try:
            self.process.stdin.write(f"CASE {operation} {in_flight} {seconds}\n")
            self.process.stdin.flush()
            return parse_answer(self.process.stdout.readline())
        except (OSError, ValueError) as error:
            self.fail(f"has no figure for {operation}, {in_flight} in flight: {error}")

    def stop(self):
        """Ends the input, which ends the system."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=STOP_SECONDS)
        self.end()

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()


def run_round(number, workload, systems, seconds, figures):
    """Adds a figure to each list of `figures`, by case and system."""
    for case in workload.cases:
        for system in turns(systems, number):
            if is_asked(system.name, *case):
                found = figures[case].setdefault(system.name, [])
                found.append(system.ask(*case, seconds))
        if case[0] == "step":
            parts = [
                figures[operation, case[1]][EMBLA][-1]
                for operation in ("lookup", "rowwise_adagrad")
            ]
            figures[case].setdefault(EMBLA, []).append(step_of(*parts))


def measure(workload, commands, rounds, seconds, logs):
    """{case: {system: [figure per round]}}"""
    figures = {case: {} for case in workload.cases}
    systems = []
    try:
        for name, command in commands.items():
            if name == EMBLA or name in workload.peers:
                systems.append(System(name, command, workload, logs / f"{name}.log"))
        for number in range(rounds):
            run_round(number, workload, systems, seconds, figures)
    finally:
        for system in systems:
            system.stop()
    return figures


def pair(text):
    name, _, value = text.partition("=")
    return name, value


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--system", type=pair, action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument(
        "--quick", action="store_true", help="smaller tables and shorter measurements"
    )
    parser.add_argument("--logs", type=Path, required=True, help="folder of the systems' logs")
    options = parser.parse_args(arguments)
    commands = {name: shlex.split(command) for name, command in options.system}
    wanted = options.workloads.split(",")
    if EMBLA not in commands or options.rounds < 1 or not set(wanted) <= set(WORKLOADS):
        parser.error(f"needs {EMBLA}, at least one round, and workloads of {', '.join(WORKLOADS)}")
    seconds = QUICK_SECONDS if options.quick else SECONDS
    print(f"instruction set: {instruction_set(Path('/proc/cpuinfo').read_text())}")
    print(f"rounds: {options.rounds}; each case and system {seconds} s per round; medians")
    print("/ PEER: Embla's rows per second by the peer's; above 1 Embla is faster")
    print(f"\n{heading(PEERS)}", flush=True)
    for name in wanted:
        workload = WORKLOADS[name].quick() if options.quick else WORKLOADS[name]
        smaller = f", but {workload.rows} rows" if options.quick else ""
        print(f"measuring {name}: {workload.text}{smaller}", file=sys.stderr, flush=True)
        figures = measure(workload, commands, options.rounds, seconds, options.logs)
        for case in workload.cases:
            if figures[case].get(EMBLA):
                print(table_line(name, case, figures[case], PEERS), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
