#!/usr/bin/env python3
"""Runs the benchmarks of two builds in turn and says what became slower.

A round runs every program three times: of the old build, of the new one, and of the old one again,
in an order that changes from round to round, so that what else the machine does hits all of them
alike. A benchmark's ratio is the median over rounds of new by old; beside it stands what the old
build does against itself, as quartiles. Exit 1: a median below 0.97 that is also below the lower
quartile of the old build against itself, or more than 1.03 times the CPU seconds of client and
servers per million rows. Exit 2: nothing to compare. Covered by bench/compare_test.py.

    bench/compare.sh OLD NEW [FILTER] [--rounds N] [--kernels AVX2]
"""

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

RATIO_MIN = 0.97
CPU_RATIO_MAX = 1.03
# One round of each; what a build does not have is left out.
PROGRAMS = [
    ["bench/kernel_lookup_bench", "-o", "json", "--rounds", "1"],
    ["bench/kernel_update_bench", "-o", "json", "--rounds", "1"],
    ["bench/zch_bench", "-o", "json", "--rounds", "1"],
    ["bench/move_bench", "-o", "json", "--rounds", "3"],
    ["bench/planner_bench", "--runs", "1"],
    ["bin/embla-bench", "--suite", "service", "--no-ceilings", "--rounds", "1",
     "-o", "json"],
]


@dataclass
class Series:
    """One figure of one benchmark, by round."""
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)  # The old build's second run.

    def ratio(self):
        return statistics.median(n / o for n, o in zip(self.new, self.old))

    def spread(self):
        """Quartiles of the old build against itself; one round has no spread but its ratio."""
        ratios = [a / o for a, o in zip(self.again, self.old)]
        if len(ratios) < 2:
            return ratios[0], ratios[0]
        quartiles = statistics.quantiles(ratios, n=4, method="inclusive")
        return quartiles[0], quartiles[2]

    def rounds(self):
        return min(len(self.old), len(self.new), len(self.again))


def figures_of(program, text):
    """{(benchmark, "rate", "ratio" or "cpu"): value} of a program's output. Higher is better but
    for "cpu". A "ratio" is to a ceiling that the program measures in the same run; the ceilings
    themselves ("..., prefetch 16"), which say how the machine is, are left out. Moves are compared
    by bytes per second: their ceiling has the settings of the servers of its build."""
    if program == "planner_bench":
        return times_of(program, text)
    document = json.loads(text)
    figures = {(f"{program}/{result['setting']}/{result['what']}", "ratio"): result["ratio"]
               for result in document.get("results", []) if "prefetch" not in result["what"]}
    if "move_bytes_per_second" in document:
        figures[f"{program}/bytes", "rate"] = document["move_bytes_per_second"]
    for case in document.get("cases", []):
        name = f"{program}/{case['name']}"
        figures[name, "rate"] = case["rows_per_second"]
        # Client and servers: over loopback, TCP's work is charged to whichever side is awake.
        figures[name, "cpu"] = (case.get("client_cpu_seconds_per_million_rows", 0) +
                                case.get("server_cpu_seconds_per_million_rows", 0))
    return {key: value for key, value in figures.items() if value > 0}


def times_of(program, text):
    """The same of a table with a column "time ms"."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith("|")]
    if not rows or "time ms" not in rows[0]:
        return {}
    column = rows[0].index("time ms")
    times = {row[0]: float(row[column]) for row in rows[2:] if len(row) == len(rows[0])}
    return {(f"{program}/{name}", "rate"): 1e3 / ms for name, ms in times.items() if ms > 0}


def run(build, command):
    program = Path(build, command[0])
    done = subprocess.run([str(program), *command[1:]], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join([str(program), *command[1:]])}: {done.stderr.strip()}")
    return figures_of(program.name, done.stdout)


def measure(old, new, rounds, programs, wanted):
    """{(benchmark, figure): Series} of benchmarks whose name has `wanted`."""
    series = {}
    for number in range(rounds):
        for command in programs:
            turns = [("old", old), ("new", new), ("again", old)]
            turns = turns[number % 3:] + turns[:number % 3]
            for side, build in turns:
                for key, value in run(build, command).items():
                    if wanted in key[0]:
                        getattr(series.setdefault(key, Series()), side).append(value)
    return {key: s for key, s in series.items() if s.rounds() > 0}


def is_worse(figure, series):
    if figure == "cpu":
        return series.ratio() > CPU_RATIO_MAX
    return series.ratio() < min(RATIO_MIN, series.spread()[0])


def report(series):
    """The table's lines, and how many of them are worse."""
    lines = [f"{'benchmark':60} {'figure':6} {'ratio':>7} {'old by old':>15}"]
    worse = 0
    for (name, figure), s in sorted(series.items()):
        low, high = s.spread()
        bad = is_worse(figure, s)
        worse += bad
        lines.append(f"{name:60} {figure:6} {s.ratio():7.3f} {low:7.3f}-{high:.3f}"
                     f"{'  WORSE' if bad else ''}")
    return lines, worse


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="a build folder")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument("filter", nargs="?", default="", help="a part of a benchmark's name")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--kernels", default="",
                        help="instruction set of embla-bench, as AVX2; default: the best")
    options = parser.parse_intermixed_args(arguments)
    programs = []
    for command in PROGRAMS:
        if options.kernels and command[0].endswith("embla-bench"):
            command = [*command, "--kernels", options.kernels]
        missing = [str(build / command[0]) for build in (options.old, options.new)
                   if not (build / command[0]).is_file()]
        if missing:
            print(f"left out: {' '.join(missing)} is not built")
        else:
            programs.append(command)
    # The filter may name a program; the others need not run then.
    programs = [c for c in programs if options.filter in Path(c[0]).name] or programs
    series = measure(options.old, options.new, options.rounds, programs, options.filter)
    if not series:
        print("nothing to compare")
        return 2
    lines, worse = report(series)
    print("\n".join(lines))
    print(f"{len(series)} figures of {options.rounds} rounds, {worse} worse")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
