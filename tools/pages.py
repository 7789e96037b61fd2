#!/usr/bin/env python3
"""Writes a program's man page and bash completion, from the definitions that `--help` prints.

Usage: pages.py PROGRAM OUT. PROGRAM is asked for its definitions (`--help-json`); the results are
OUT/man/NAME.SECTION.gz and OUT/bash-completion/NAME. Servers stand in section 8, others in 1.

Covered by tests/house/pages_test.py.
"""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

PROGRAMS = {"embla": 1, "embla-train": 1, "embla-coordinator": 8, "embla-shard": 8}


def definitions(program):
    """Asks the program; the fields are those of core/base/program_description.h."""
    done = subprocess.run([program, "--help-json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def commands_of(command, path=""):
    """(path, command) of a command and of all under it: ("embla table create", {...})."""
    path = f"{path} {command['name']}".strip()
    yield path, command
    for sub in command["commands"]:
        yield from commands_of(sub, path)


def values_of(option):
    """The names that an option of a fixed list takes: its type is NAME:{a, b}."""
    listed = re.search(r"\{([^}]*)\}", option["type"])
    return [value.strip() for value in listed.group(1).split(",")] if listed else []


# ---------------------------------------------------------------------------- man page


def roff(text):
    """Text as roff shows it: nothing in it is a request or an escape."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", escaped)


def option_lines(option):
    name = ", ".join(f"\\fB{roff(n)}\\fR" for n in option["names"])
    name = name or f"\\fI{roff(option['label'])}\\fR"
    kind = option["type"].split(":")[0]
    if option["names"] and kind:
        name += f" \\fI{roff(kind)}\\fR" + (" ..." if option["many"] else "")
    more = []
    if values := values_of(option):
        more.append("One of " + ", ".join(values) + ".")
    if limits := re.search(r" in \[(.*?) - (.*?)\]", option["type"]):
        more.append(f"From {limits.group(1)} to {limits.group(2)}.")
    if option["default"]:
        more.append(f"Default: {option['default']}.")
    if option["environment"]:
        more.append(f"Environment: {option['environment']}.")
    if option["required"]:
        more.append("Required.")
    help_text = " ".join(option["help"].split()).rstrip(".") + "."
    return [".TP", name, roff(" ".join([help_text, *more]))]


def man_page(program):
    name, section = program["name"], PROGRAMS[program["name"]]
    version = program["version"]
    lines = [
        f'.TH "{roff(name).upper()}" "{section}" "" "Embla {roff(version)}" "Embla"',
        ".SH NAME", f"{roff(name)} \\- {roff(program['help'])}",
        ".SH SYNOPSIS", f".B {roff(name)}",
        "[\\fIOPTIONS\\fR]" + (" \\fICOMMAND\\fR ..." if program["commands"] else ""),
        ".SH OPTIONS",
    ]  # fmt: skip
    for option in program["options"]:
        lines += option_lines(option)
    leaves = [(p, c) for p, c in commands_of(program) if not c["commands"] and p != name]
    if leaves:
        lines.append(".SH COMMANDS")
    for path, command in leaves:
        lines += [f'.SS "{roff(path)}"', roff(" ".join(command["help"].split()).rstrip(".") + ".")]
        for option in command["options"]:
            if "--help" not in option["names"]:
                lines += option_lines(option)
    if program["footer"]:
        lines += [".SH NOTES", roff(" ".join(program["footer"].split()))]
    others = [f"\\fB{roff(other)}\\fR({PROGRAMS[other]})" for other in sorted(PROGRAMS)
              if other != name]  # fmt: skip
    lines += [".SH SEE ALSO", ",\n".join(others)]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------- completion


def quoted(words):
    return "'" + " ".join(words) + "'"


def completion(program):
    name = program["name"]
    function = "_" + name.replace("-", "_")
    everywhere = [n for option in program["options"] for n in option["names"]]
    known, words, values, files = [], [], [], []
    for path, command in commands_of(program):
        flags = [n for option in command["options"] for n in option["names"]]
        subcommands = [sub["name"] for sub in command["commands"]]
        offered = [w for w in dict.fromkeys(subcommands + flags + everywhere)
                   if not re.fullmatch("-.", w)]  # fmt: skip
        words.append(f"    '{path}') words={quoted(offered)} ;;")
        if path != name:
            known.append(f"'{path}'")
        for option in command["options"]:
            # Options of the program may also stand behind its commands.
            prefix = "*" if command is program else f"'{path}'"
            for flag in option["names"] if option["type"] else []:
                if listed := values_of(option):
                    values.append(f"    {prefix}' {flag}') values={quoted(listed)} ;;")
                else:
                    files.append(f"    {prefix}' {flag}') return ;;")
    lines = [
        f"# Completion of {name} in bash.",
        f"{function}() {{",
        "  local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD - 1]}\"",
        f"  local path='{name}' word words='' values=''",
        "  COMPREPLY=()",
    ]
    if known:
        lines += [
            "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do",
            "    case \"$path $word\" in",
            f"    {'|'.join(known)}) path+=\" $word\" ;;",
            "    esac",
            "  done",
        ]
    lines += ["  case \"$path $previous\" in", *values, *files, "  esac"]
    lines += ["  case \"$path\" in", *words, "  esac"]
    lines += [
        "  mapfile -t COMPREPLY < <(compgen -W \"${values:-$words}\" -- \"$current\")",
        "}",
        f"complete -o default -F {function} {name}",
    ]
    return "\n".join(lines) + "\n"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def main():
    program = definitions(sys.argv[1])
    name = program["name"]
    # No time in it: the same definitions give the same bytes.
    page = gzip.compress(man_page(program).encode(), mtime=0)
    write(Path(sys.argv[2], "man", f"{name}.{PROGRAMS[name]}.gz"), page)
    write(Path(sys.argv[2], "bash-completion", name), completion(program).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
