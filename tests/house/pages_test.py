"""Man pages and completion say what the programs' --help says, and work.

Usage: pages_test.py BUILD_DIR. The build has made the pages: BUILD_DIR/pages.
"""

import gzip
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import pages  # noqa: E402

SKIPPED = 77
BUILD_DIR = None


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def program(name):
    return BUILD_DIR / "bin" / name


def page_of(name):
    path = BUILD_DIR / f"pages/man/{name}.{pages.PROGRAMS[name]}.gz"
    return gzip.decompress(path.read_bytes()).decode()


def words_of(command):
    """Everything that may stand after a command: its commands and long flags."""
    found = [sub["name"] for sub in command["commands"]]
    return found + [n for o in command["options"] for n in o["names"] if n.startswith("--")]


def completed(name, *lines):
    """Asks bash what it offers after each line, the last word of which is begun."""
    script = [f"source {BUILD_DIR}/pages/bash-completion/{name}"]
    for line in lines:
        words = " ".join(f"'{word}'" for word in line.split(" "))
        script += [
            f"COMP_WORDS=({words})", "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))",
            f"_{name.replace('-', '_')}", 'echo "${COMPREPLY[*]}"',
        ]  # fmt: skip
    done = run("bash", "-c", "\n".join(["set -u", *script]))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [line.split() for line in done.stdout.split("\n")][: len(lines)]


class PagesTest(unittest.TestCase):
    def each(self):
        for name in pages.PROGRAMS:
            with self.subTest(name):
                yield name, pages.definitions(program(name))

    def test_definitions_have_every_flag_of_help(self):
        for name, definitions in self.each():
            for path, command in pages.commands_of(definitions):
                shown = run(program(name), *path.split()[1:], "--help").stdout
                names = re.findall(r"(?m)^ {2,4}(-[\w,-]+)", shown)
                flags = [n for one in names for n in one.split(",") if n.startswith("--")]
                self.assertTrue(flags, path)
                described = [f for o in command["options"] for f in o["names"]]
                described = [f for f in described if f.startswith("--")]
                self.assertEqual(sorted(flags), sorted(described), path)

    def test_man_pages_have_every_command_and_flag(self):
        for name, definitions in self.each():
            page = page_of(name)
            for path, command in pages.commands_of(definitions):
                if path != name and not command["commands"]:
                    self.assertIn(f'.SS "{pages.roff(path)}"', page)
                for option in command["options"] if not command["commands"] else []:
                    for flag in option["names"]:
                        self.assertIn(pages.roff(flag), page)

    def test_man_pages_are_valid(self):
        if shutil.which("mandoc") is None:
            self.skipTest("no mandoc here")
        for name, _ in self.each():
            done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=page_of(name),
                                  capture_output=True, text=True, check=False)  # fmt: skip
            # A page without a date is meant: the same sources give the same bytes.
            left = [line for line in done.stdout.splitlines() if "missing date" not in line]
            self.assertEqual(left, [])

    def test_completion_offers_every_command_and_flag(self):
        for name, definitions in self.each():
            commands = list(pages.commands_of(definitions))
            offered = completed(name, *(f"{path} " for path, _ in commands))
            for (path, command), words in zip(commands, offered, strict=True):
                self.assertLessEqual(set(words_of(command)), set(words), path)

    def test_completion_of_begun_words_and_values(self):
        offered = completed(
            "embla", "embla ta", "embla table cr", "embla -o json no", "embla node ls -o ",
            "embla table create --zc", "embla journal verify ", "embla table create --file ",
        )  # fmt: skip
        self.assertEqual(offered[0], ["table"])
        self.assertEqual(offered[1], ["create"])
        self.assertEqual(offered[2], ["node"])
        self.assertEqual(offered[3], ["table", "json"])
        self.assertEqual(offered[4], ["--zch"])
        self.assertIn("--admin", offered[5])
        self.assertEqual(offered[6], [])  # Bash offers files.
        self.assertEqual(completed("embla-shard", "embla-shard --durability w"), [["written"]])

    def test_versions_say_commit_build_and_libraries(self):
        for name, definitions in self.each():
            shown = run(program(name), "--version").stdout
            self.assertRegex(shown, rf"^{name} \d+\.\d+\.\d+\+\S+\nbuild: \w+, (GNU|Clang) \d")
            self.assertTrue(shown.startswith(f"{name} {definitions['version']}\n"))
            libraries = shown.split("libraries: ")[1].split()
            for library in ("libgrpc++.so.", "libprotobuf.so.", "libcrypto.so."):
                self.assertEqual(sum(f.startswith(library) for f in libraries), 1, library)


if __name__ == "__main__":
    BUILD_DIR = Path(sys.argv.pop(1)).resolve()
    if not (BUILD_DIR / "pages").is_dir():
        print(f"SKIPPED: {BUILD_DIR} was built without pages")
        sys.exit(SKIPPED)
    unittest.main()
