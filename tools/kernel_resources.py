#!/usr/bin/env python3
"""Holds the CUDA kernels to what they may cost: registers, stack, 16-byte accesses, and no trap.

Compiles each source for one architecture, reads what the assembler reports about every kernel, and
compares it with a table of bounds, so that a lost 16-byte load or a spilled register shows without
a GPU. Wide accesses are counted in the PTX, whose vector accesses the assembler keeps. A `trap` in
the PTX is undefined behaviour that nvcc saw and does not speak of; none is allowed. Exit 1: a
kernel is out of its bounds, or has none, or has a trap, or a bound has no kernel. Covered by
tools/kernel_resources_test.py.

    tools/kernel_resources.py --nvcc /usr/local/cuda/bin/nvcc kernels/cuda/resources.toml

A build compiles with --compile SOURCE, which fails at a trap and writes down what it measured; its
test compares that with the table (--measured) and compiles nothing.

With --in-flight it reads the machine code that the build has kept, by cuobjdump, and compares which
loads are on their way together (sass.py) with the table; it prints, as Markdown, how many bytes a
multiprocessor then waits for, beside what the memory's speed asks for. Exit 77: no cuobjdump.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import sass

ELEMENTS = {"1": "fp32", "2": "fp16", "3": "bf16", "4": "int8"}
ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\S+)' for.*?\n"
    r"(?:.*\n)*?.*?(?P<stack>\d+) bytes stack frame, (?P<spills>\d+) bytes spill stores.*\n"
    r".*?Used (?P<registers>\d+) registers")
PTX_ENTRY = re.compile(r"^(?:\.visible |\.weak )?\.entry (\S+?)\(", re.MULTILINE)
TRAP = re.compile(r"^\s*(?:@!?%p\d+ )?trap;", re.MULTILINE)
WIDE_PTX = {
    "wide_loads": re.compile(r"\bld\.(?:global\.)?(?:[a-z:_0-9]+\.)*?v4\.[bfu]32"),
    "wide_stores": re.compile(r"\bst\.(?:global\.)?(?:[a-z:_0-9]+\.)*?v4\.[bfu]32"),
}
SASS_FUNCTION = re.compile(r"^\s*Function : (\S+)", re.MULTILINE)
# A multiprocessor of this architecture.
REGISTERS = 65536
WARPS_MAX = 64
LANES = 32
LOAD_BYTES = 16
BLOCK_WARPS = 8  # kThreads of kernels/cuda/device.cuh.


@dataclass
class Kernel:
    name: str  # PoolKernel<fp32, true>
    source: str
    registers: int
    stack: int
    spills: int
    wide_loads: int = 0
    wide_stores: int = 0
    loads_in_flight: tuple = ()  # Lengths of its runs of loads (sass.py), where its row asks.


def short_name(demangled):
    """PoolKernel<fp32, true> of what c++filt makes of a mangled kernel."""
    name = re.sub(r"\(embla::kernels::Element\)(\d)", lambda m: ELEMENTS[m[1]], demangled)
    name = re.sub(r"\(anonymous namespace\)::|embla::\w+::cuda::|^void ", "", name)
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return name[:i]
    return name


def demangle(names):
    if not names:
        return []
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                          check=True)
    return done.stdout.splitlines()


def sections(text, head):
    """{name: text up to the next head} for every match of `head`."""
    found = list(head.finditer(text))
    ends = [m.start() for m in found[1:]] + [len(text)]
    return {m[1]: text[m.end():end] for m, end in zip(found, ends)}


def kernels_of(source, report, ptx):
    """The kernels of one source; those of CUB are its own business."""
    bodies = {name: {key: len(pattern.findall(body)) for key, pattern in WIDE_PTX.items()}
              for name, body in sections(ptx, PTX_ENTRY).items()}
    entries = [m.groupdict() for m in ENTRY.finditer(report)]
    kernels = []
    for entry, name in zip(entries, demangle([e["name"] for e in entries])):
        if not re.match(r"(void )?embla::", name):
            continue
        counts = {key: int(entry[key]) for key in ("registers", "stack", "spills")}
        kernels.append(Kernel(short_name(name), source, **counts, **bodies.get(entry["name"], {})))
    return kernels


def traps_of(ptx):
    """The kernels with a trap."""
    entries = sections(ptx, PTX_ENTRY)
    return [short_name(name) for name, body in zip(demangle(list(entries)), entries.values())
            if TRAP.search(body)]


def measure(source, nvcc, architecture, flags, keep=None):
    """Compiles one source, to the object `keep`, and returns its kernels. Ends the program at a
    trap."""
    with tempfile.TemporaryDirectory() as folder:
        built = keep or Path(folder) / "kernels.o"
        command = [nvcc, "-std=c++20", f"-arch=sm_{architecture}", "-O3", "--fmad=false",
                   "--expt-relaxed-constexpr", "-I.", "-Xptxas", "-v", "--keep", "--keep-dir",
                   folder, *flags, "-c", source, "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        ptx = (Path(folder) / (Path(source).stem + ".ptx")).read_text()
        if trapped := traps_of(ptx):
            sys.exit("\n".join(f"{source}: {name} is compiled to a trap: device code takes the "
                               "address of a host's constant, or is undefined in another way"
                               for name in trapped))
        return kernels_of(source, done.stderr, ptx)


def row_of(name, bounds):
    return next((b for b in bounds if re.fullmatch(b["kernel"], name)), None)


def check(kernels, bounds):
    """Violations, as lines. The first row whose pattern matches a kernel's whole name counts."""
    problems = []
    used = set()
    for kernel in kernels:
        row = row_of(kernel.name, bounds)
        if row is None:
            problems.append(f"{kernel.source}: {kernel.name} has no row in the table of bounds")
            continue
        used.add(row["kernel"])
        stack_max = row.get("stack_max", 0)
        if kernel.stack > stack_max or kernel.spills > stack_max:
            problems.append(f"{kernel.source}: {kernel.name} has {kernel.stack} bytes of stack and "
                            f"spills {kernel.spills}, at most {stack_max}")
        for key in ("registers", "wide_loads", "wide_stores"):
            value = getattr(kernel, key)
            low, high = row.get(f"{key}_min", 0), row.get(f"{key}_max", 1 << 30)
            if not low <= value <= high:
                wanted = f"at least {low}" if value < low else f"at most {high}"
                problems.append(f"{kernel.source}: {kernel.name} has {value} {key}, {wanted}")
    for row in bounds:
        if row["kernel"] not in used:
            problems.append(f"no kernel is called {row['kernel']}: drop its row")
    return problems


def measured_of(folder, source):
    """The kernels of one source as a build has written them down."""
    file = folder / f"{source}.json"
    if not file.is_file():
        sys.exit(f"not built: {file}")
    return [Kernel(**kernel) for kernel in json.loads(file.read_text())]


def measure_all(table, options):
    """The kernels of every source of the table, from a build's files or from the compiler."""
    if options.measured:
        return [kernel for source in table["sources"]
                for kernel in measured_of(options.measured, source)]
    sources = [options.only] if options.only else table["sources"]
    with ThreadPoolExecutor(options.jobs) as pool:
        measured = list(pool.map(
            lambda s: measure(s, options.nvcc, table["architecture"], options.flag), sources))
    return [kernel for group in measured for kernel in group]


def add_loads_in_flight(kernels, code, bounds):
    """To the kernels of one source whose rows have `in_flight`, by their machine code."""
    bodies = sections(code, SASS_FUNCTION)
    named = dict(zip((short_name(name) for name in demangle(list(bodies))), bodies.values()))
    for kernel in kernels:
        row = row_of(kernel.name, bounds)
        if row is not None and "in_flight" in row:
            kernel.loads_in_flight = sass.loads_in_flight(named[kernel.name])


def warps_of(registers):
    """How many warps are on a multiprocessor, in whole blocks, by registers."""
    per_warp = (registers + 7) // 8 * 8 * LANES
    return min(REGISTERS // (per_warp * BLOCK_WARPS) * BLOCK_WARPS, WARPS_MAX)


def check_in_flight(kernels, table):
    """Lines of a Markdown table, one for each row of bounds that has `in_flight`, with the figures
    of its kernel that has the fewest bytes in flight; and violations, as lines."""
    memory = table["memory"]
    asked = memory["bytes_per_second"] * memory["latency_seconds"] / memory["multiprocessors"]
    lines = ["| kernel | loads in flight, loop by loop | registers | warps | KB in flight |",
             "|---|---|---|---|---|"]
    problems = []
    for row in (row for row in table["bounds"] if "in_flight" in row):
        wanted = row["in_flight"]
        worst = None
        for kernel in kernels:
            if row_of(kernel.name, table["bounds"]) is not row:
                continue
            found = kernel.loads_in_flight
            if len(found) != len(wanted) or any(f < w for f, w in zip(found, wanted)):
                problems.append(f"{kernel.source}: {kernel.name} has {found} loads in flight, loop "
                                f"by loop; at least {wanted}, and no others")
            warps = warps_of(kernel.registers)
            size = min(found, default=0) * LOAD_BYTES * LANES * warps
            if size < asked:
                problems.append(f"{kernel.source}: {kernel.name} has {size} bytes in flight on a "
                                f"multiprocessor, and {asked:.0f} are asked for")
            if worst is None or size < worst[0]:
                worst = (size, found, kernel.registers, warps)
        if worst is None:
            problems.append(f"no kernel is called {row['kernel']}: drop its row")
            continue
        name = row["kernel"].replace("\\w+", "*").replace("|", "\\|")
        lines.append(f"| `{name}` | {', '.join(map(str, worst[1]))} | {worst[2]} | {worst[3]} "
                     f"| {worst[0] / 1000:.1f} |")
    lines.append(f"| asked for | | | | {asked / 1000:.1f} |")
    return lines, problems


def report_in_flight(table, options):
    """Prints what --in-flight asks for; the exit code."""
    cuobjdump = shutil.which("cuobjdump", path=str(Path(options.nvcc).parent)) or \
        shutil.which("cuobjdump")
    if cuobjdump is None:
        print("SKIPPED: no cuobjdump, in PATH or beside nvcc, to read the machine code by")
        return 77
    kernels = []
    for source in table["sources"]:
        found = measured_of(options.measured, source)
        code = subprocess.run([cuobjdump, "--dump-sass", options.measured / f"{source}.o"],
                              capture_output=True, text=True, check=True).stdout
        add_loads_in_flight(found, code, table["bounds"])
        kernels += found
    lines, problems = check_in_flight(kernels, table)
    print("\n".join(lines + problems))
    return 1 if problems else 0


def compile_one(source, into, table, options):
    """One source of a build: its kernels into a file, which is new only if there is no trap."""
    flags = [*options.flag, "-MD", "-MF", f"{into}.d", "-MT", str(into)]
    kernels = measure(source, options.nvcc, table["architecture"], flags, into.with_suffix(".o"))
    into.write_text(json.dumps([asdict(kernel) for kernel in kernels], indent=1))


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path, help="the table of bounds")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--only", help="one source of the table; the others' rows do not count")
    parser.add_argument("--compile", metavar="SOURCE", help="measure one source, with --into")
    parser.add_argument("--into", type=Path, help="where to write it, and a .d beside it")
    parser.add_argument("--measured", type=Path, help="a folder of what --compile wrote")
    parser.add_argument("--flag", action="append", default=[], help="of nvcc, beside the usual")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--in-flight", action="store_true",
                        help="compare the loads in flight, with --measured")
    parser.add_argument("--print", action="store_true", help="print every kernel's figures")
    options = parser.parse_args(arguments)

    table = tomllib.loads(options.table.read_text())
    if options.compile:
        compile_one(options.compile, options.into, table, options)
        return 0
    if options.in_flight:
        return report_in_flight(table, options)
    kernels = measure_all(table, options)
    if options.print:
        for k in sorted(kernels, key=lambda k: (k.source, k.name)):
            print(f"{k.name:55} registers {k.registers:3} stack {k.stack:3} spills {k.spills:3} "
                  f"wide loads {k.wide_loads:2} stores {k.wide_stores:2}")
    problems = check(kernels, table["bounds"])
    if options.only:
        problems = [p for p in problems if p.startswith(options.only)]
    print("\n".join(problems))
    print(f"{len(kernels)} kernels, {len(problems)} out of bounds")
    return 1 if problems or not kernels else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
