"""Makes stand-ins for NVIDIA's libraries, so that a CUDA build of torch imports without them.

PyPI has torch for Linux only as a CUDA build, whose libraries weigh several gigabytes although a
machine without a GPU never calls them. This script compiles one small library for each of them:
every function that torch or FBGEMM wants of it returns 100, which is cudaErrorNoDevice, so that
``torch.cuda.is_available()`` is False.

For continuous integration only, where gigabytes cost time. Never ship what it makes, and never
install it where there is a GPU.

    python nvidia_stubs.py SITE_PACKAGES OUT
    LD_LIBRARY_PATH=OUT python -c "import torch"
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

NO_DEVICE = 100
OBJECT_BYTES = 4096  # Room for any variable that NVIDIA's libraries export.
NVIDIA = re.compile(r"lib(cu|nv|nccl)")
# Symbols of a library begin so, where the library's version is not in their names.
PREFIXES = {
    "libcudart": r"(__)?cuda[A-Z_]",
    "libcublasLt": r"cublasLt",
    "libcublas": r"cublas(?!Lt)",
    "libcudnn": r"cudnn",
    "libcufft": r"cufft",
    "libcufile": r"cuFile",
    "libcupti": r"cupti",
    "libcurand": r"curand",
    "libcusolver": r"cusolver",
    "libcusparseLt": r"cusparseLt",
    "libcusparse": r"cusparse(?!Lt)",
    "libnccl": r"p?nccl",
    "libnvrtc": r"nvrtc",
    "libnvshmem_host": r"(_Z.*)?nvshmem",
    "libnvJitLink": r"(__)?nvJit",
}


@dataclass(frozen=True)
class Symbol:
    name: str
    version: str
    is_object: bool


@dataclass
class Inventory:
    """The symbols that a set of shared libraries needs and defines."""

    libraries: set[str] = field(default_factory=set)
    undefined: set[Symbol] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)

    def add(self, path: Path) -> None:
        dynamic = subprocess.check_output(["readelf", "-dW", path], text=True)
        self.libraries |= set(re.findall(r"NEEDED.*\[(.*?)\]", dynamic))
        for line in subprocess.check_output(
            ["readelf", "--dyn-syms", "-W", path], text=True
        ).splitlines():
            columns = line.split()
            if len(columns) < 8 or not columns[0].endswith(":"):
                continue
            kind, section, name = columns[3], columns[6], columns[7]
            base, _, version = name.partition("@")
            if section == "UND":
                self.undefined.add(Symbol(base, version.lstrip("@"), kind == "OBJECT"))
            else:
                self.defined.add(base)

    def wanted_of(self, library: str) -> list[Symbol]:
        """Returns the symbols that nobody here defines and ``library`` is to have."""
        prefix = PREFIXES.get(library.partition(".so")[0])
        wanted = [
            symbol
            for symbol in self.undefined
            if symbol.name not in self.defined
            and (
                symbol.version == library
                or (
                    prefix is not None
                    and re.match(prefix, symbol.name)
                    and not symbol.version.startswith("lib")
                )
            )
        ]
        return sorted(wanted, key=lambda symbol: (symbol.version, symbol.name))


def compile_stub(library: str, symbols: list[Symbol], out: Path) -> None:
    """Compiles ``library`` with ``symbols`` into the folder ``out``."""
    source = out / f"{library}.c"
    lines = {
        f"char {s.name}[{OBJECT_BYTES}];"
        if s.is_object
        else f"int {s.name}(void) {{ return {NO_DEVICE}; }}"
        for s in symbols
    }
    source.write_text("\n".join(sorted(lines)) + "\n")
    command = ["gcc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{library}"]
    versions: dict[str, list[str]] = defaultdict(list)
    for symbol in symbols:
        if symbol.version:
            versions[symbol.version].append(symbol.name)
    if versions:
        script = out / f"{library}.map"
        script.write_text(
            "".join(f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in versions.items())
        )
        command.append(f"-Wl,--version-script={script}")
    subprocess.run([*command, str(source), "-o", str(out / library)], check=True)


def main() -> None:
    """Compiles a stub of every NVIDIA library that torch and FBGEMM need."""
    site_packages, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    inventory = Inventory()
    for folder in ("torch/lib", "fbgemm_gpu"):
        for path in sorted((site_packages / folder).glob("*.so*")):
            if not path.is_symlink():
                inventory.add(path)
    for library in sorted(filter(NVIDIA.match, inventory.libraries)):
        symbols = inventory.wanted_of(library)
        compile_stub(library, symbols, out)
        print(f"{library}: {len(symbols)} symbols")


if __name__ == "__main__":
    main()
