#!/usr/bin/env python3
"""Fails when a translated kernel is launched by no program.

Each file is what a program wrote at its end (machine.cc): a line per kernel, "launched" or "never"
and its name. A kernel that is never launched in one program may be in another.

    tools/ptx_run/launched.py FILE ...
"""

import subprocess
import sys
from pathlib import Path


def idle(texts):
    """The kernels of all texts that none of them says is launched."""
    states = {}
    for line in "".join(texts).splitlines():
        state, name = line.split(maxsplit=1)
        states.setdefault(name, set()).add(state)
    return sorted(name for name, seen in states.items() if "launched" not in seen), len(states)


def main():
    never, count = idle([Path(file).read_text() for file in sys.argv[1:]])
    named = subprocess.run(["c++filt"], input="\n".join(never), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    print("\n".join(f"never launched: {name}" for name in named))
    print(f"{count} kernels, {len(never)} never launched")
    return 1 if never or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
