"""Finds the loads of a kernel that are on their way together, in its machine code.

A *run* is a series of wide loads in a loop of which none waits for another: between them no
instruction touches a register that a load since the run's first one fills, be it a load of a row or
of an index. What was loaded before the run began may be used. A run goes forward through branches,
and not the loop's way back. Where paths join, the one with the most wide loads counts, and among
equals one that waited: a row that is read in words or else by elements is read in words, and an
index that only some callers have is waited for.

So `row; index; use of the index; row` are two runs of one load, and `index; index; row; row` is one
run of two.
"""

import re
from dataclasses import dataclass

INSTRUCTION = re.compile(
    r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
REGISTER = re.compile(r"\bR(\d+)(\.64)?")
TARGET = re.compile(r"0x([0-9a-f]+)$")
GLOBAL_LOAD = re.compile(r"(?:LDG|LD|ATOMG|ATOM)\.")
# Operations on pairs of registers, by which operands are pairs: all, or the first and the last.
ALL_PAIRS = re.compile(r"D(?:ADD|MUL|FMA|SETP)|CS2R")
OUTER_PAIRS = re.compile(r"IMAD\.WIDE|LDC\.64")


@dataclass
class Instruction:
    address: int
    guard: str  # "@!P0", or None.
    name: str  # LDG.E.128.CONSTANT
    operands: list

    def is_load(self):
        return GLOBAL_LOAD.match(self.name) is not None

    def is_wide_load(self):
        return self.is_load() and self.width() == 4

    def fills(self):
        """The registers that a load writes."""
        first = next((o for o in self.operands if REGISTER.match(o)), None)
        if first is None:
            return frozenset()
        return widened(int(REGISTER.match(first)[1]), self.width())

    def width(self):
        """Registers of a load's or store's data."""
        return 4 if ".128" in self.name else 2 if ".64" in self.name else 1

    def touches(self):
        """The registers that it reads or writes."""
        touched = set()
        last = len(self.operands) - 1
        for i, operand in enumerate(self.operands):
            for number, pair in REGISTER.findall(operand):
                width = 2 if pair or ALL_PAIRS.match(self.name) or (
                    OUTER_PAIRS.match(self.name) and i in (0, last)) else 1
                if self.name.startswith(("ST", "LD")) and "[" not in operand:
                    width = self.width()
                touched |= widened(int(number), width)
        return touched

    def target(self):
        """Where a branch goes; None for what is no branch. BRA.DIV comes back."""
        match = TARGET.search(self.operands[-1]) if self.name == "BRA" and self.operands else None
        return int(match[1], 16) if match else None

    def ends_path(self):
        """Whether what lies behind it comes from elsewhere."""
        return self.guard is None and (self.name in ("EXIT", "RET", "BRX", "JMX") or
                                       self.name.startswith(("RET.", "BRX.", "JMX.")) or
                                       (self.name == "BRA" and len(self.operands) == 1))


def widened(first, width):
    return frozenset(range(first, first + width))


def parse(body):
    """The instructions of one function of cuobjdump --dump-sass."""
    return [Instruction(int(address, 16), guard or None, name,
                        [part.strip() for part in re.split(r",(?![^\[]*\])", operands)])
            for address, guard, name, operands in INSTRUCTION.findall(body)]


def loops_of(code):
    """[first, last] addresses of every loop, the shortest ones first."""
    loops = [(i.target(), i.address) for i in code
             if i.target() is not None and i.target() < i.address]
    return sorted(loops, key=lambda loop: loop[1] - loop[0])


@dataclass
class Path:
    """The way from a run's first load to a place."""
    alive: bool  # It has not waited.
    count: int  # Wide loads on it.
    pending: frozenset  # Registers that its loads fill.


def join(a, b):
    if a is None or b.count > a.count:
        return b
    if a.count > b.count:
        return a
    return Path(a.alive and b.alive, a.count, a.pending | b.pending)


def run_from(code, start, last, is_wide):
    """Positions in `code` of the loads of the run that begins at position `start`, and how many of
    them lie on one path. The loop ends at address `last`."""
    reached = {code[start].address: Path(True, 0, frozenset())}
    members, longest = [], 0
    for at in range(start, len(code)):
        now = code[at]
        path = reached.pop(now.address, None)
        if now.address > last:
            break
        if path is None:
            continue
        alive = path.alive and path.pending.isdisjoint(now.touches())
        count = path.count + (1 if is_wide(at) else 0)
        if alive and count > path.count:
            members.append(at)
            longest = max(longest, count)
        path = Path(alive, count, path.pending | now.fills() if now.is_load() else path.pending)
        nexts = [now.target()] if now.target() is not None else []
        if not now.ends_path() and at + 1 < len(code):
            nexts.append(code[at + 1].address)
        for address in nexts:
            if address > now.address:
                reached[address] = join(reached.get(address), path)
        if not any(p.alive for p in reached.values()):
            break
    return members, longest


def loads_in_flight(body):
    """The lengths of a kernel's runs of loads of 16 bytes, the longest first."""
    code = parse(body)
    loops = loops_of(code)
    taken, runs = set(), []
    for at, now in enumerate(code):
        if at in taken or not now.is_wide_load():
            continue
        loop = next((l for l in loops if l[0] <= now.address <= l[1]), None)
        if loop is None:
            continue
        members, longest = run_from(
            code, at, loop[1], lambda i: i not in taken and code[i].is_wide_load())
        taken.update(members)
        runs.append(longest)
    return sorted(runs, reverse=True)
