#!/usr/bin/env python3
"""Checks the rules of the house that no compiler knows, in a second.

Errors (exit 1): an include that tools/layers.toml does not allow, a circle of rooms, a header only
some files may use, a missing `#pragma once`, own header not first, lines over 100 columns, files
over 600 lines (tests 800), functions over 70 lines, a TODO without an issue, commented-out code, a
source or header that no CMakeLists.txt names, a file name that says nothing (util, helper, ...),
std::min, std::max or std::clamp in a header that device code includes, a launch by <<<>>>, a
`default:` in a switch over an enum whose values the compiler is to ask for, a comment or docstring
that begins with a word of which the reader must guess the noun (Of, Those, What, ...), a status
that a test checks by its ok(), which prints nothing.
Warnings (exit 0): headers over 200 lines, sources over 400, functions over 40, over 5 parameters.

Covered by tools/tidy_test.py.
"""

import argparse
import fnmatch
import os
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

COLUMNS_MAX = 100
LINES_MAX, TEST_LINES_MAX = 600, 800
HEADER_LINES_GOOD, SOURCE_LINES_GOOD = 200, 400
FUNCTION_LINES_MAX, FUNCTION_LINES_GOOD = 70, 40
PARAMETERS_GOOD = 5
BANNED_WORDS = {"util", "utils", "helper", "helpers", "common", "manager", "misc"}

CPP = {".h", ".cc", ".cu", ".cuh"}
HEADERS = {".h", ".cuh"}
TEXT = CPP | {".proto", ".py", ".sh", ".cmake", ".toml", ".yaml", ".yml"}
SKIPPED_FOLDERS = {"build", "third_party", "__pycache__"}
GENERATED = ["deploy/helm/rendered/*"]  # By programs that know no columns; house tests compare.
TEST_FILES = [
    "*_test.*", "*_test_support.*", "*_fixture.*", "*/fake_*", "*_conformance.h", "*_fuzzer.cc",
    "*/testing/*", "tests/*",
]
# Scripts without an ending.
EXTRA_FILES = [".ci/run", "docker/Dockerfile", "docker/Dockerfile.cuda"]


@dataclass
class File:
    path: str  # From the root, with slashes.
    lines: list[str]
    code: list[str] = field(default_factory=list)  # Without comments and literals; C++ only.

    @property
    def suffix(self):
        return Path(self.path).suffix

    @property
    def is_test(self):
        return matches(self.path, TEST_FILES)


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    message: str
    is_error: bool = True

    def __str__(self):
        kind = "error" if self.is_error else "warning"
        return f"{self.path}:{self.line}: {kind}: {self.message}"


def matches(path, globs):
    return any(fnmatch.fnmatchcase(path, g) for g in globs)


# ---------------------------------------------------------------------------- reading


def strip_literals(text):
    """The same text with comments, strings and characters blanked; line breaks stay."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
        re.DOTALL,
    )
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def read_files(root):
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(
            s for s in subfolders if not s.startswith(".") and s not in SKIPPED_FOLDERS
        )
        for name in sorted(names):
            path = Path(folder, name).relative_to(root).as_posix()
            is_ours = not matches(path, GENERATED)
            if is_ours and (Path(name).suffix in TEXT or name == "CMakeLists.txt"):
                yield read_file(root, path)
    for path in EXTRA_FILES:
        if Path(root, path).is_file():
            yield read_file(root, path)


def read_file(root, path):
    text = Path(root, path).read_text(encoding="utf-8")
    code = strip_literals(text) if Path(path).suffix in CPP else ""
    return File(path, text.splitlines(), code.splitlines())


# ---------------------------------------------------------------------------- layers


class Layers:
    def __init__(self, document):
        self.rooms = document["rooms"]
        self.headers = document.get("headers", [])

    def room_of(self, path):
        """The room with the longest matching path, or None."""
        fits = [r for r in self.rooms if path.startswith(r + "/")]
        return max(fits, key=len, default=None)

    def allowed(self, room, is_test):
        globs = list(self.rooms[room]["deps"])
        if is_test:
            globs += self.rooms[room].get("tests", [])
        return globs

    def circle(self):
        """A circle of production dependencies as a list of rooms, or None."""
        done = set()

        def visit(room, trail):
            if room in trail:
                return [*trail[trail.index(room):], room]
            if room in done:
                return None
            for other in self.rooms:
                if other != room and matches(other, self.rooms[room]["deps"]):
                    if found := visit(other, [*trail, room]):
                        return found
            done.add(room)
            return None

        for room in self.rooms:
            if found := visit(room, []):
                return found
        return None


INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(file):
    for number, line in enumerate(file.lines, 1):
        if m := INCLUDE.match(line):
            yield number, m.group(1), m.group(2)


def target_room(layers, include):
    """The room an include line reaches, or None for outside headers."""
    if include.endswith(".pb.h"):
        return "proto" if include.startswith("embla/") else None
    if include.startswith("embla/"):
        return "client/include"
    return layers.room_of(include)


def check_includes(file, layers):
    room = layers.room_of(file.path)
    if room is None:
        yield Finding(file.path, 1, "no room in tools/layers.toml has this file")
        return
    allowed = layers.allowed(room, file.is_test)
    public = file.path.startswith("client/include/")
    for number, bracket, include in includes(file):
        target = target_room(layers, include)
        if target is None and bracket == '"' and "/" not in include:
            yield Finding(file.path, number, f'"{include}": write the path from the root')
        if target not in (None, room) and not matches(target, allowed):
            yield Finding(file.path, number, f"{room} may not include {target} ({include})")
        if public and "/" in include and not include.startswith(("absl/", "embla/")):
            yield Finding(file.path, number, f"public headers see std and Abseil only ({include})")
        for rule in layers.headers:
            pattern = rule["include"] if "*" in rule["include"] else rule["include"] + "*"
            if fnmatch.fnmatchcase(include, pattern) and not matches(file.path, rule["files"]):
                yield Finding(file.path, number, f"{include}: {rule['why']}")


def check_own_header_first(file, paths):
    if file.suffix not in {".cc", ".cu"}:
        return
    stem = re.sub(r"_(test|bench)$", "", file.path.removesuffix(file.suffix))
    own = [stem + ".h", stem + ".cuh"]
    if stem.startswith("client/"):
        public = "embla/" + Path(stem).name + ".h"
        own += [public, "client/include/" + public]
    first = next(includes(file), None)
    for header in own:
        exists = header in paths or f"client/include/{header}" in paths
        if exists and first is not None and first[2] not in own:
            if file.is_test and not any(header == i for _, _, i in includes(file)):
                continue
            yield Finding(file.path, first[0], f'include "{header}" first')
            return


# ---------------------------------------------------------------------------- text


def check_lines(file):
    todo = re.compile(r"\bTODO\b(?!\(#\d+\): \S)")
    for number, line in enumerate(file.lines, 1):
        if len(line) > COLUMNS_MAX:
            yield Finding(file.path, number, f"{len(line)} columns, at most {COLUMNS_MAX}")
        if "\t" in line:
            yield Finding(file.path, number, "a tab")
        if line != line.rstrip():
            yield Finding(file.path, number, "space at the end of the line")
        if todo.search(line) and not file.path.startswith("tools/tidy"):
            yield Finding(file.path, number, "TODO without an issue: write TODO(#123): ...")


# Statements, not prose: what ends like code and has code's punctuation. Examples in contracts are
# indented by two spaces or more after the slashes.
COMMENTED_CODE = re.compile(
    r"^\s*// ?(?=\S)(?:"
    r"(?:[\w:<>,*&.\[\]]+(?:->|\.|::| ))*[\w:\]]+\([^)]*\)(?: const)?;"  # call(...);
    r"|[\w:<>,*&.\[\]()> -]+ [-+*/|&]?= .+;"  # a = b;
    r"|return\b[^.]*;|#\s*include\b.*"
    r"|(?:if|for|while|switch) ?\(.*\) ?\{?"
    r"|(?:\} else \{|[{}])"
    r"|[\w:<>,*& ]+\)? (?:const )?(?:override )?\{"
    r")\s*$"
)


def check_commented_code(file):
    for number, line in enumerate(file.lines, 1):
        if COMMENTED_CODE.match(line):
            yield Finding(file.path, number, "commented-out code")


# Openings of fragments: "Of the rows.", "What a client knows." A question is a sentence.
OPENING = re.compile(r"(?:Of|Those|Whose|What|As|That|Which|Who|Whom|By whom)\b(?!.*\?)")
CPP_COMMENT = re.compile(r"(?:^|\s)//+<? ?(.*)")
HASH_COMMENT = re.compile(r"^\s*# ?(.*)|\s{2}# (.*)")
DOCSTRING = re.compile(r'^\s*"""(.*)')


def comments(file):
    """Yields (line, first line of the text) of comments: of a block of lines only the first."""
    is_inside = False  # The line above ends with a comment that this one may continue.
    for number, line in enumerate(file.lines, 1):
        pattern = CPP_COMMENT if file.suffix in CPP | {".proto"} else HASH_COMMENT
        m = pattern.search(line)
        is_whole_line = m is not None and not line[: m.start()].strip()
        # After code, a quote says that the mark may be in a literal.
        if m and (is_whole_line or '"' not in line):
            text = next((group for group in m.groups() if group is not None), "")
            if text and not (is_inside and is_whole_line):
                yield number, text
            is_inside = bool(text)
            continue
        is_inside = False
        if file.suffix == ".py" and (m := DOCSTRING.match(line)):
            yield number, m.group(1)


def check_comments(file):
    for number, text in comments(file):
        if m := OPENING.match(text):
            message = f"the comment begins with {m.group()}: name its subject"
            yield Finding(file.path, number, message)


def check_size(file):
    count = len(file.lines)
    limit = TEST_LINES_MAX if file.is_test else LINES_MAX
    good = HEADER_LINES_GOOD if file.suffix in HEADERS else SOURCE_LINES_GOOD
    if count > limit:
        yield Finding(file.path, count, f"{count} lines, at most {limit}")
    elif count > good and not file.is_test:
        yield Finding(file.path, count, f"{count} lines, better at most {good}", is_error=False)


def check_pragma_once(file):
    is_header = file.suffix in HEADERS and not file.path.endswith("-inl.h")
    if is_header and "#pragma once" not in file.lines:
        yield Finding(file.path, 1, "no #pragma once")


def check_name(file):
    words = set(re.split(r"[_.-]", Path(file.path).name.lower()))
    folders = set(Path(file.path).parts[:-1])
    if bad := sorted((words | folders) & BANNED_WORDS):
        yield Finding(file.path, 1, f"the name says nothing: {', '.join(bad)}")


# ---------------------------------------------------------------------------- functions

NOT_FUNCTIONS = re.compile(
    r"\b(?:if|for|while|switch|catch|do|else|try|return)\b|(?<![=!<>])=(?!=)"
)
ACCESS = re.compile(r"\b(?:public|private|protected)\s*:$")
# `Name(...) : a_(1), b_`: the brace that follows initialises a member.
MEMBER_INIT = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:)(?:.*[,\s])?\s*\w+\s*$", re.DOTALL)
SCOPES = re.compile(r"\b(?:namespace|class|struct|enum|union)\b|\bextern\b\s*$")


def functions(file):
    """Yields (first line, last line, parameters) of every function body outside functions."""
    stack = []  # One entry per open brace: "scope", "init", "other" or (first line, parameters).
    head, head_line, depth = "", 0, 0  # The text before the next brace; open parentheses.
    for number, line in enumerate(file.code, 1):
        if line.lstrip().startswith("#"):
            continue
        for char in line + "\n":
            ends_head = char in "{};" and depth <= 0
            if char == "{":
                stack.append(classify(head, head_line, stack) if depth <= 0 else "other")
                ends_head = ends_head and stack[-1] != "init"
            elif char == "}" and stack:
                entry = stack.pop()
                ends_head = ends_head and entry != "init"
                if isinstance(entry, tuple):
                    yield entry[0], number, entry[1]
            depth += (char == "(") - (char == ")")
            if ends_head or ACCESS.search(head + char):
                head, head_line, depth = "", 0, 0
                continue
            if not head.strip():
                head_line = number
            head += char


def classify(head, line, stack):
    """Returns what the brace after `head` opens."""
    if any(entry != "scope" for entry in stack):
        return "other"
    text = head.strip()
    if MEMBER_INIT.search(text):
        return "init"
    if "(" not in text or (SCOPES.search(text) and not re.search(r"\)\s*(?:const)?$", text)):
        return "scope" if SCOPES.search(text) else "other"
    signature = re.split(r"\)\s*:(?!:)", text)[0]  # Without a constructor's initialisers.
    bare = re.sub(r"operator\s*\S+|\(.*\)|=\s*default", "", signature, flags=re.DOTALL)
    if NOT_FUNCTIONS.search(bare):
        return "other"
    return (line, count_parameters(text))


def count_parameters(signature):
    depth, commas, seen = 0, 0, False
    begin = signature.find("(")
    if m := re.search(r"operator\s*\(\s*\)\s*\(", signature):
        begin = m.end() - 1
    for char in signature[begin:]:
        depth += (char in "(<[{") - (char in ")>]}")
        if depth == 0:
            break
        seen = seen or (depth == 1 and char not in "( \n")
        commas += char == "," and depth == 1
    return commas + 1 if seen else 0


def check_functions(file):
    for first, last, parameters in functions(file):
        length = last - first + 1
        if length > FUNCTION_LINES_MAX:
            text = f"function of {length} lines, at most {FUNCTION_LINES_MAX}"
            yield Finding(file.path, first, text)
        elif length > FUNCTION_LINES_GOOD and not file.is_test:
            text = f"function of {length} lines, better at most {FUNCTION_LINES_GOOD}"
            yield Finding(file.path, first, text, is_error=False)
        if parameters > PARAMETERS_GOOD:
            text = f"{parameters} parameters, better at most {PARAMETERS_GOOD}"
            yield Finding(file.path, first, text, is_error=False)


# ---------------------------------------------------------------------------- switches

# A new optimizer or sharding type must not fall into what an old switch does by default.
WHOLE_ENUMS = {"OptimizerKind", "ShardingType"}
SWITCH_TOKEN = re.compile(r"\bswitch\b|\bcase\s+([\w:]+)|\bdefault\s*:|[{}]")


def check_switches(file):
    switches = []  # One entry per open brace: what the switch has, or None for another brace.
    is_next = False  # The next brace opens a switch.
    for number, line in enumerate(file.code, 1):
        for m in SWITCH_TOKEN.finditer(line):
            inner = next((s for s in reversed(switches) if s is not None), None)
            if m.group() == "switch":
                is_next = True
            elif m.group() == "{":
                switches.append({"enums": set(), "default": None} if is_next else None)
                is_next = False
            elif m.group() == "}":
                found = switches.pop() if switches else None
                if found and found["default"] and (enums := found["enums"] & WHOLE_ENUMS):
                    text = f"no default in a switch over {enums.pop()}: name every value"
                    yield Finding(file.path, found["default"], text)
            elif inner is not None and m.group(1):
                inner["enums"].update(m.group(1).split("::")[:-1])
            elif inner is not None:
                inner["default"] = number


# ---------------------------------------------------------------------------- tests

BARE_OK = re.compile(r"\b(?:EXPECT|ASSERT)_(?:TRUE|FALSE)(\()")
# Kernels know nothing of core/base, where the matchers are.
WITHOUT_MATCHERS = "kernels/"


def check_bare_ok(file):
    if file.path.startswith(WITHOUT_MATCHERS):
        return
    text = "\n".join(file.code)
    for m in BARE_OK.finditer(text):
        end, depth = m.start(1) + 1, 1
        while depth and end < len(text):
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        if re.search(r"\bok\(\)\s*\)$", text[m.start(1):end]):
            line = text.count("\n", 0, m.start()) + 1
            advice = "write EXPECT_THAT(status, IsOk()) or StatusIs, of status_matchers.h"
            yield Finding(file.path, line, f"a failure would print no status: {advice}")


# ---------------------------------------------------------------------------- build


def cmake_text(file):
    """The text of a CMakeLists.txt without comments; loops and its own functions written out."""
    text = "\n".join(line.split("#")[0] for line in file.lines)
    loops = r"foreach\((\w+)\s+([^)]*)\)(.*?)endforeach\(\)"
    for variable, items, body in re.findall(loops, text, flags=re.DOTALL):
        text += "".join(body.replace(f"${{{variable}}}", item) for item in items.split())
    definitions = r"function\((\w+)\s+(\w+)[^)]*\)(.*?)endfunction\(\)"
    for name, parameter, body in re.findall(definitions, text, flags=re.DOTALL):
        for argument in re.findall(rf"\b{name}\((\S+?)[\s)]", text):
            text += body.replace(f"${{{parameter}}}", argument)
    return text


def check_listed(file, cmake_texts):
    """The file's name stands in the CMakeLists.txt of its folder or of one above it."""
    if file.path.endswith("-inl.h") or (file.is_test and file.suffix in HEADERS):
        return
    folder = Path(file.path).parent
    for place in [folder, *folder.parents]:
        text = cmake_texts.get(place.as_posix())
        if text is None:
            continue
        name = Path(file.path).relative_to(place).as_posix()
        if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", text):
            return
    yield Finding(file.path, 1, "no CMakeLists.txt lists this file")


def test_only_headers(files):
    """Headers that nothing but tests includes: no target has to list them."""
    users = {}
    for file in files:
        if file.suffix in CPP:
            for _, _, include in includes(file):
                users.setdefault(include, set()).add(file.path)
    is_test = {f.path: f.is_test for f in files}
    return {
        f.path
        for f in files
        if f.suffix in HEADERS and users.get(f.path) and all(is_test[u] for u in users[f.path])
    }


# ---------------------------------------------------------------------------- device code


def device_files(files):
    """Paths of .cu and .cuh, and of every header that they include, directly or not."""
    by_path = {f.path: f for f in files if f.suffix in CPP}
    found = {path for path, file in by_path.items() if file.suffix in {".cu", ".cuh"}}
    waiting = list(found)
    while waiting:
        for _, _, include in includes(by_path[waiting.pop()]):
            for path in (include, "client/include/" + include):
                if path in by_path and path not in found:
                    found.add(path)
                    waiting.append(path)
    return found


BY_REFERENCE = re.compile(r"\bstd::(?:min|max|clamp)\b")


def check_device_code(file):
    """They take addresses: of a host's constant in device code, which nvcc compiles to a trap."""
    for number, line in enumerate(file.code, 1):
        if file.suffix in HEADERS and (m := BY_REFERENCE.search(line)):
            yield Finding(file.path, number, f"{m.group()} in a header of device code: compare")
        if "<<<" in line:
            yield Finding(file.path, number, "start kernels by Launch: it answers for itself only")


# ---------------------------------------------------------------------------- all


def check_all(root):
    layers = Layers(tomllib.loads(Path(root, "tools/layers.toml").read_text(encoding="utf-8")))
    files = list(read_files(root))
    paths = {f.path for f in files}
    cmake_texts = {
        Path(f.path).parent.as_posix(): cmake_text(f)
        for f in files
        if Path(f.path).name == "CMakeLists.txt"
    }
    for_tests = test_only_headers(files)
    for_devices = device_files(files)
    findings = []
    if circle := layers.circle():
        text = "rooms in a circle: " + " -> ".join(circle)
        findings.append(Finding("tools/layers.toml", 1, text))
    for file in files:
        findings += [*check_lines(file), *check_name(file), *check_comments(file)]
        if file.suffix not in CPP:
            continue
        findings += check_includes(file, layers)
        findings += check_own_header_first(file, paths)
        findings += check_commented_code(file)
        findings += check_size(file)
        findings += check_pragma_once(file)
        findings += check_functions(file)
        findings += check_switches(file)
        findings += check_bare_ok(file)
        if file.path in for_devices:
            findings += check_device_code(file)
        if file.path not in for_tests:
            findings += check_listed(file, cmake_texts)
    return sorted(set(findings)), len(files)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--quiet", action="store_true", help="errors only")
    options = parser.parse_args()
    findings, count = check_all(options.root)
    errors = [f for f in findings if f.is_error]
    for finding in errors if options.quiet else findings:
        print(finding)
    print(f"{count} files, {len(errors)} errors, {len(findings) - len(errors)} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
