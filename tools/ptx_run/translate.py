#!/usr/bin/env python3
"""Translates PTX, as nvcc writes it, to C++: a function per kernel, a statement per instruction.

A register becomes a variable that holds its bits; what an instruction does with them is a function
of instructions.h, whose memory accesses are checked. An instruction that is not known, or a form of
it, is an error, so nothing is left out in silence. docs/cuda_kernels.md says what this is for.

    nvcc -ptx -o pool.ptx pool.cu && tools/ptx_run/translate.py pool.ptx pool.cc
"""

import re
import sys
from pathlib import Path

# C++ types of PTX types, and of the bits that a register holds.
TYPES = {"u8": "std::uint8_t", "s8": "std::int8_t", "u16": "std::uint16_t", "u32": "std::uint32_t",
         "u64": "std::uint64_t", "s16": "std::int16_t", "s32": "std::int32_t",
         "s64": "std::int64_t", "b16": "std::uint16_t", "b32": "std::uint32_t",
         "b64": "std::uint64_t", "f16": "Half", "bf16": "BFloat16", "f32": "float",
         "f64": "double"}
REGISTERS = {"pred": "bool", "b16": "std::uint16_t", "b32": "std::uint32_t",
             "b64": "std::uint64_t", "f32": "std::uint32_t", "f64": "std::uint64_t"}
SPECIAL = {"%tid.x": "Tid()", "%ntid.x": "Ntid()", "%ctaid.x": "CtaidX()", "%ctaid.y": "CtaidY()",
           "%nctaid.x": "NctaidX()", "%nctaid.y": "NctaidY()"}
BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
OPERATORS = {"eq": "std::equal_to<>", "ne": "std::not_equal_to<>", "lt": "std::less<>",
             "le": "std::less_equal<>", "gt": "std::greater<>", "ge": "std::greater_equal<>"}

# Instructions by pattern: the expression that the first operand becomes. T, S are the C++ types of
# the pattern's groups of these names; a, b, c, d the operands after the first one.
T = r"(?P<T>[usb](?:16|32|64)|f32|f64)"
RULES = [(re.compile(pattern), expression) for pattern, expression in (
    (r"mov\.pred", "{a}"),
    (r"(?:mov|cvta\.to\.global)\." + T, "{a}"),
    (r"not\.pred", "!{a}"),
    (r"and\.pred", "{a} && {b}"),
    (r"or\.pred", "{a} || {b}"),
    (r"xor\.pred", "{a} != {b}"),
    (r"(?P<op>add|sub|mul|div)\.rn\.(?P<T>f32|f64)", "{Op}<{T}>({a}, {b})"),
    (r"(?P<op>add|sub|div)\.(?P<T>[us](?:16|32|64))", "{Op}<{T}>({a}, {b})"),
    (r"mul\.lo\.(?P<T>[us](?:16|32|64))", "Mul<{T}>({a}, {b})"),
    (r"mul\.wide\.(?P<T>[us](?:16|32))", "MulWide<{T}>({a}, {b})"),
    (r"mul\.hi\.(?P<T>u(?:32|64))", "MulHigh<{T}>({a}, {b})"),
    (r"mad\.lo\.(?P<T>[us](?:32|64))", "Add<{T}>(Mul<{T}>({a}, {b}), {c})"),
    (r"(?P<op>min|max)\." + T, "{Op}<{T}>({a}, {b})"),
    (r"(?P<op>neg)\." + T, "{Op}<{T}>({a})"),
    (r"(?P<op>sqrt|rcp)\.rn\.(?P<T>f32|f64)", "{Op}<{T}>({a})"),
    (r"(?P<op>and|or|xor)\.b(?:16|32|64)", "{a} {symbol} {b}"),
    (r"not\.b(?:16|32|64)", "~{a}"),
    (r"(?P<op>shl|shr)\.(?P<T>[usb](?:16|32|64))", "{Op}<{T}>({a}, {b})"),
    (rf"setp\.(?P<compare>{'|'.join(OPERATORS)})(?P<unordered>u?)\." + T,
     "Compare<{T}, {Operator}, {unordered}>({a}, {b})"),
    (r"selp\." + T, "{c} ? {a} : {b}"),
    (r"cvt\.(?:rn\.)?(?P<T>bf16|f16|f32|f64)\.(?P<S>f16|f32|f64|[us](?:16|32|64))",
     "Convert<{T}, {S}>({a})"),
    (r"cvt\.(?P<T>[us](?:16|32|64))\.(?P<S>[us](?:16|32|64))", "Convert<{T}, {S}>({a})"),
    (r"cvt\.rzi\.(?P<T>u(?:32|64)|f32)\.(?P<S>f32)", "Truncate<{T}>({a})"),
    (r"prmt\.b32", "Permute({a}, {b}, {c})"),
    (r"bfi\.b32", "InsertBits({a}, {b}, {c}, {d})"),
    (r"brev\.b32", "ReverseBits({a})"),
    (r"bfind\.shiftamt\.u32", "ShiftToHighestBit({a})"),
    (r"vote\.sync\.ballot\.b32", "Ballot({a}, {b})"),
    (r"atom(?:\.global)?\.(?P<how>add|max|or)\.(?P<T>u32|u64|b32)",
     "Atomic<{T}, k{How}>({address}, {b})"),
)]
MEMORY = re.compile(r"(?P<op>ld|st)(?P<where>\.global|\.param)?(?P<mods>(?:\.(?:nc|cs))*)"
                    r"(?:\.v(?P<lanes>[24]))?\.(?P<type>[usb](?:8|16|32|64)|f32|f64)")
SHUFFLE = re.compile(r"shfl\.sync\.(idx|bfly)\.b32")
SYMBOLS = {"and": "&", "or": "|", "xor": "^"}

ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)(.*?)\n\{\n(.*?)\n\}", re.DOTALL)
PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.[a-z](\d+)\s+(\w+)(?:\[(\d+)\])?")


class Unknown(Exception):
    """An instruction, or a form of one, that is not translated."""


def operands(text):
    """ "%r1, [%rd2+8], {%r3, %r4}" in its three parts."""
    return [part.strip() for part in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,])+", text)]


def inside(braces):
    return [part.strip() for part in braces[1:-1].split(",")]


class Kernel:

    def __init__(self, name, parameters, body):
        self.name = name
        self.size = 0
        self.parameters = {}  # Name: (offset, bytes).
        for match in PARAMETER.finditer(parameters):
            align, bits, parameter, count = match.groups()
            size = BYTES[bits] * int(count or 1)
            at = int(align or BYTES[bits])
            self.size = (self.size + at - 1) // at * at
            self.parameters[parameter] = (self.size, size)
            self.size += size
        self.declarations = []
        self.statements = []
        for line in re.split(r"[\n;]", re.sub(r"//[^\n]*", "", body)):
            self.translate(line.strip().strip("{}").strip() if "cvt" in line else line.strip())

    def translate(self, line):
        if not line or line in "{}" or line.startswith(".pragma"):
            return
        if line.startswith(".reg"):
            kind, prefix, count = re.fullmatch(r"\.reg\s+\.(\w+)\s+%(\w+)<(\d+)>", line).groups()
            names = ", ".join(f"{prefix}{i} = Unset<{REGISTERS[kind]}>" for i in range(int(count)))
            self.declarations.append(f"[[maybe_unused]] {REGISTERS[kind]} {names};")
            return
        label = re.fullmatch(r"\$(\w+):", line)
        if label:
            self.statements.append(f"{label[1]}:;")
            return
        match = re.fullmatch(r"(?:@(!?)%(p\d+)\s+)?([a-z][\w.]*)\s*(.*)", line, re.DOTALL)
        if not match:
            raise Unknown(line)
        negated, predicate, op, rest = match.groups()
        statement = self.statement(op, operands(rest))
        if predicate:
            statement = f"if ({negated}{predicate}) {{ {statement} }}"
        self.statements.append(statement)

    def statement(self, op, parts):
        if op in ("bra", "bra.uni"):
            return f"goto {parts[0][1:]};"
        if op == "ret":
            return "return;"
        if op == "trap":
            return "Trap();"
        if op == "bar.warp.sync":
            return f"SyncWarp({self.value(parts[0])});"
        shuffle = SHUFFLE.fullmatch(op)
        if shuffle:
            return self.shuffle(shuffle[1], parts)
        memory = MEMORY.fullmatch(op)
        if memory:
            return self.access(memory, parts)
        if op.startswith("mov.b") and "{" in "".join(parts):
            return self.move_parts(op, parts)
        for pattern, expression in RULES:
            match = pattern.fullmatch(op)
            if match:
                return self.assign(match, expression, parts)
        raise Unknown(f"{op} {parts}")

    def assign(self, match, expression, parts):
        groups = match.groupdict()
        words = {name: TYPES[groups[name]] for name in "TS" if groups.get(name)}
        words.update(zip("abcd", (None if part[0] == "[" else self.value(part)
                                  for part in parts[1:])))
        if parts[1][0] == "[":
            words["address"] = self.address(parts[1])
        words["Op"] = groups.get("op", "").capitalize()
        words["How"] = groups.get("how", "").capitalize()
        words["Operator"] = OPERATORS.get(groups.get("compare"))
        words["unordered"] = "true" if groups.get("unordered") else "false"
        words["symbol"] = SYMBOLS.get(groups.get("op"))
        return f"{self.register(parts[0])} = {expression.format(**words)};"

    def move_parts(self, op, parts):
        """mov.b64 between one register and two halves."""
        half = int(op[5:]) // 2
        if parts[0][0] == "{":
            low, high = (self.register(part) for part in inside(parts[0]))
            value = self.value(parts[1])
            return f"{low} = {value}; {high} = {value} >> {half};"
        low, high = (self.value(part) for part in inside(parts[1]))
        whole = TYPES[f"u{2 * half}"]
        return f"{self.register(parts[0])} = {whole}{{{low}}} | {whole}{{{high}}} << {half};"

    def shuffle(self, how, parts):
        to, _, found = parts[0].partition("|")
        value, source, clamp, mask = (self.value(part) for part in parts[1:])
        kind = {"idx": "kIndex", "bfly": "kButterfly"}[how]
        ok = self.register(found) if found else "unused"
        return (f"{{ [[maybe_unused]] bool unused; {self.register(to)} = "
                f"Shuffle<{kind}>({value}, {source}, {clamp}, {mask}, {ok}); }}")

    def access(self, match, parts):
        element = TYPES[match["type"].replace("b8", "u8")]
        lanes = int(match["lanes"] or 1)
        memory, values = (parts[1], parts[0]) if match["op"] == "ld" else (parts[0], parts[1])
        listed = inside(values) if lanes > 1 else [values]
        if len(listed) != lanes:
            raise Unknown(str(parts))
        address = self.address(memory)
        if match["op"] == "st":
            stored = ", ".join(f"As<{element}>({self.value(value)})" for value in listed)
            return f"Store<{element}, {lanes}>({address}, {{{stored}}});"
        verb = ("LoadParameter" if match["where"] == ".param" else
                "LoadConstant" if ".nc" in match["mods"] else "Load")
        # Integers widen by their sign.
        bits = "Raw(v[{}])" if match["type"][0] == "f" else "v[{}]"
        loads = "".join(f" {self.register(value)} = {bits.format(i)};"
                        for i, value in enumerate(listed))
        return f"{{ const auto v = {verb}<{element}, {lanes}>({address});{loads} }}"

    def register(self, text):
        if not re.fullmatch(r"%[a-z]+\d+", text):
            raise Unknown(text)
        return text[1:]

    def value(self, text):
        if text in SPECIAL:
            return SPECIAL[text]
        if text in self.parameters:
            return f"AddressOf(parameters + {self.parameters[text][0]})"
        if text.startswith("!"):
            return "!" + self.register(text[1:])
        if text.startswith("%"):
            return self.register(text)
        if re.fullmatch(r"0[fd][0-9A-F]+", text):
            return f"0x{text[2:]}u" + ("ll" if text[1] == "d" else "")
        if re.fullmatch(r"-?\d+", text):
            return text + ("ull" if int(text) >= 1 << 63 else "ll")
        raise Unknown(text)

    def address(self, text):
        base, sign, offset = re.fullmatch(r"\[\s*([%\w]+)\s*(?:([+-])\s*(-?\d+))?\s*\]",
                                          text).groups()
        return self.value(base) + (f" {sign} {offset}" if offset else "")

    def __str__(self):
        return "\n".join([f"void Run(const unsigned char* parameters) {{",
                          "(void)parameters;", *self.declarations, *self.statements, "}"])


def translate(ptx):
    """C++ of all kernels of a PTX file."""
    out = ['#include "tools/ptx_run/instructions.h"', "namespace embla::ptx_run { namespace {"]
    kernels = [Kernel(match[1], match[2], match[4]) for match in ENTRY.finditer(ptx)]
    for number, kernel in enumerate(kernels):
        layout = ", ".join(f"{{{at}, {size}}}" for at, size in kernel.parameters.values())
        out += [f"namespace kernel_{number} {{", str(kernel),
                f'const Kernel kKernel("{kernel.name}", &Run, {kernel.size}, {{{layout}}});', "}"]
    if len(kernels) != ptx.count(".entry"):
        raise Unknown("an .entry of another form")
    return "\n".join([*out, "} }  // namespace embla::ptx_run", ""])


def main():
    source, target = map(Path, sys.argv[1:])
    try:
        target.write_text(translate(source.read_text()))
    except Unknown as unknown:
        sys.exit(f"{source}: not translated: {unknown}")


if __name__ == "__main__":
    main()
