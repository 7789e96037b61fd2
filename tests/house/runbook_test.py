"""The runbook's words on backups, restores and lost machines are words of the programs.

Usage: runbook_test.py BIN_DIR. Every `embla ...` that these parts of docs/runbook.md give has verbs
and flags that the program knows, every message and metric that they name is in the sources, and
tests/integration/restore_test.cc runs the commands of a backup and a restore as they stand there.
"""

import re
import subprocess
import sys
import unittest
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ["Backup", "Restore", "Lost machines", "Rows that are lost"]
SOURCES = ["core", "client", "server", "tools"]
BIN_DIR = None


def parts_of(page):
    """The text of PARTS, by heading."""
    found = {}
    for piece in re.split(r"^##+ ", page, flags=re.MULTILINE):
        heading, _, text = piece.partition("\n")
        if heading in PARTS:
            found[heading] = text
    return found


def commands_in(text):
    """Lines of code, and what stands in backticks, that begin with `embla `."""
    lines = [line.split("#")[0].strip() for line in text.splitlines() if line.startswith("    ")]
    spans = re.findall(r"`([^`\n]+)`", text)
    return [command for command in lines + spans if command.startswith("embla ")]


def literals_of(path):
    """The strings of a C++ source, those that the compiler joins as one."""
    joined = re.sub(r'"\s*\n\s*"', "", path.read_text())
    return re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined)


@cache
def all_literals():
    files = [file for room in SOURCES for file in sorted((ROOT / room).rglob("*.[ch]*"))]
    return [
        literal
        for file in files
        if file.suffix in {".cc", ".h"} and not file.stem.endswith("_test")
        for literal in literals_of(file)
    ]


@cache
def help_of(program, *verbs):
    """The program's help for a verb; empty: it has no such verb."""
    command = [BIN_DIR / program, *verbs, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # Without the verb the help would be that of the words before it.
    is_known = done.returncode == 0 and f"{' '.join((program, *verbs))} " in f"{done.stdout} "
    return done.stdout if is_known else ""


def has_flag(text, flag):
    return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text) is not None


def wrong_command(command):
    """The part of the command that the program does not know; empty: it knows all."""
    words = command.split()[1:]
    verbs = []
    for word in words:
        if not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        verbs.append(word)
    text = help_of("embla", *verbs)
    if not text:
        return f"`{command}`: there is no such verb"
    unknown = [w for w in words if w.startswith("--") and not has_flag(text, w)]
    return f"`{command}`: no such flag: {' '.join(unknown)}" if unknown else ""


def wrong_flag(flag):
    verbs = [("embla", "node", "forget"), ("embla-shard",), ("embla-coordinator",)]
    known = any(has_flag(help_of(*verb), flag) for verb in verbs)
    return "" if known else f"`{flag}`: no program here has this flag"


def wrong_message(message):
    """Messages are quoted with … for what they leave out, and with NAME for a name."""
    pieces = re.split(r"…|\b[A-Z]+\b|:(?= )", message)
    for piece in (piece.strip() for piece in pieces):
        if len(piece) > 1 and not any(piece in literal for literal in all_literals()):
            return f"`{message}`: no source says `{piece}`"
    return ""


def wrong_words(page):
    """Messages and names in these parts of the page that the tree does not know."""
    found = []
    parts = parts_of(page)
    found += [f"there is no part {part}" for part in PARTS if part not in parts]
    for text in parts.values():
        found += [wrong_command(command) for command in commands_in(text)]
        for span in re.findall(r"`([^`\n]+)`", text):
            if span.startswith("embla "):
                continue
            if span.startswith("--"):
                found.append(wrong_flag(span))
            elif span.startswith("embla_"):
                found.append("" if span in all_literals() else f"`{span}`: no such metric")
            elif " " in span:
                found.append(wrong_message(span))
    return [problem for problem in found if problem]


class RunbookTest(unittest.TestCase):
    def setUp(self):
        self.page = (ROOT / "docs/runbook.md").read_text()

    def expect_wrong(self, old, new, what):
        self.assertIn(old, self.page)
        problems = wrong_words(self.page.replace(old, new))
        self.assertTrue(any(what in problem for problem in problems), problems)

    def test_every_verb_flag_message_and_metric_is_known(self):
        self.assertEqual(wrong_words(self.page), [])

    def test_words_are_found(self):
        parts = parts_of(self.page)
        backup, lost = commands_in(parts["Backup"]), commands_in(parts["Lost machines"])
        self.assertIn("embla cluster backup --state-dir DIR --to PATH", backup)
        self.assertIn("embla node forget NAME --lose-rows --wait", lost)
        self.assertGreater(sum(len(commands_in(text)) for text in parts.values()), 12)

    def test_a_wrong_verb_flag_message_or_metric_is_named(self):
        self.expect_wrong("embla cluster backup", "embla cluster save", "no such verb")
        self.expect_wrong("restore --from PATH", "restore --source PATH", "no such flag: --source")
        self.expect_wrong("--lose-rows --wait", "--drop-rows", "no such flag: --drop-rows")
        self.expect_wrong("`--accept-loss`", "`--accept-all`", "no program here has this flag")
        self.expect_wrong("ask again when it is dead", "ask when it is dead", "no source says")
        self.expect_wrong("`embla_rows_lost_total`", "`embla_lost_rows_total`", "no such metric")
        self.expect_wrong("## Lost machines", "## Machines", "there is no part Lost machines")

    def test_the_test_of_restores_runs_these_commands(self):
        test = re.sub(r'"\s*,\s*[\w>()-]+\s*,\s*"', "X",
                      (ROOT / "tests/integration/restore_test.cc").read_text())
        parts = parts_of(self.page)
        for command in commands_in(parts["Backup"])[:1] + commands_in(parts["Restore"])[:1]:
            words = re.sub(r"\b[A-Z]+\b", "X", command.removeprefix("embla "))
            beginning = words.rsplit("X", 1)[0]
            with self.subTest(command):
                self.assertIn(f'"{beginning}', test)


if __name__ == "__main__":
    BIN_DIR = Path(sys.argv.pop(1)).resolve()
    unittest.main()
