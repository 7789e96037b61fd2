#!/usr/bin/env python3
"""Holds the CUDA kernels to what they may cost: registers, stack, 16-byte accesses, and no trap.

Compiles each source for one architecture, reads what the assembler reports about every kernel, and
compares it with a table of bounds, so that a lost 16-byte load or a spilled register shows without
a GPU. Wide accesses are counted in the machine code where cuobjdump is at hand, else in the PTX,
whose vector accesses the assembler keeps. A `trap` in the PTX is undefined behaviour that nvcc saw
and does not speak of; none is allowed. Exit 1: a kernel is out of its bounds, or has none, or has a
trap, or a bound has no kernel. Covered by tools/kernel_resources_test.py.

    tools/kernel_resources.py --nvcc /usr/local/cuda/bin/nvcc kernels/cuda/resources.toml

A build compiles with --compile SOURCE, which fails at a trap and writes down what it measured; its
test compares that with the table (--measured) and compiles nothing.
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
WIDE_SASS = {
    "wide_loads": re.compile(r"\bLDG?\.E(?:\.\w+)*?\.128"),
    "wide_stores": re.compile(r"\bSTG?\.E(?:\.\w+)*?\.128"),
}


@dataclass
class Kernel:
    name: str  # PoolKernel<fp32, true>
    source: str
    registers: int
    stack: int
    spills: int
    wide_loads: int = 0
    wide_stores: int = 0


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


def kernels_of(source, report, code, wide):
    """The kernels of one source; those of CUB are its own business."""
    bodies = {name: {key: len(pattern.findall(body)) for key, pattern in wide.items()}
              for name, body in sections(*code).items()}
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


def measure(source, nvcc, architecture, flags):
    """Compiles one source and returns its kernels. Ends the program at a trap."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "kernels.o"
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
        cuobjdump = shutil.which("cuobjdump", path=str(Path(nvcc).parent)) or \
            shutil.which("cuobjdump")
        if cuobjdump:
            sass = subprocess.run([cuobjdump, "--dump-sass", str(built)], capture_output=True,
                                  text=True, check=True).stdout
            return kernels_of(source, done.stderr, (sass, SASS_FUNCTION), WIDE_SASS)
        return kernels_of(source, done.stderr, (ptx, PTX_ENTRY), WIDE_PTX)


def check(kernels, bounds):
    """Violations, as lines. The first row whose pattern matches a kernel's whole name counts."""
    problems = []
    used = set()
    for kernel in kernels:
        row = next((b for b in bounds if re.fullmatch(b["kernel"], kernel.name)), None)
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


def measure_all(table, options):
    """The kernels of every source of the table, from a build's files or from the compiler."""
    if options.measured:
        files = [options.measured / f"{source}.json" for source in table["sources"]]
        if missing := [str(f) for f in files if not f.is_file()]:
            sys.exit(f"not built: {' '.join(missing)}")
        return [Kernel(**kernel) for f in files for kernel in json.loads(f.read_text())]
    sources = [options.only] if options.only else table["sources"]
    with ThreadPoolExecutor(options.jobs) as pool:
        measured = list(pool.map(
            lambda s: measure(s, options.nvcc, table["architecture"], options.flag), sources))
    return [kernel for group in measured for kernel in group]


def compile_one(source, into, table, options):
    """One source of a build: its kernels into a file, which is new only if there is no trap."""
    flags = [*options.flag, "-MD", "-MF", f"{into}.d", "-MT", str(into)]
    kernels = measure(source, options.nvcc, table["architecture"], flags)
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
    parser.add_argument("--print", action="store_true", help="print every kernel's figures")
    options = parser.parse_args(arguments)

    table = tomllib.loads(options.table.read_text())
    if options.compile:
        compile_one(options.compile, options.into, table, options)
        return 0
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
