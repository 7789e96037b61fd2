"""docs/doctor.md has the checks of `embla doctor`, which reads files as servers do.

Usage: doctor_test.py BIN_DIR.
"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BIN_DIR = None


def run(*command):
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def checks():
    return json.loads(run(BIN_DIR / "embla", "doctor", "--list", "-o", "json").stdout)


def anchors_of(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def row_of(check):
    cells = [f"`{check['check']}`", check["severity"], check["mistake"], check["what_to_do"]]
    part = check["page"].split("#")[1]
    return f"| {' | '.join(cells)} | [{part}](runbook.md#{part}) |"


def flags_of(program):
    """The flags that may stand in the program's file."""
    options = json.loads(run(BIN_DIR / program, "--help-json").stdout)["options"]
    names = [name[2:] for option in options for name in option["names"] if name.startswith("--")]
    return set(names) - {"config", "help", "version"}


def found(*arguments):
    """The checks that found something on this machine, with what they say."""
    done = run(BIN_DIR / "embla", "doctor", "--machine", "-o", "json", *arguments)
    return [(one["check"], one["what"]) for one in json.loads(done.stdout)["findings"]]


class DoctorTest(unittest.TestCase):
    def test_the_page_has_every_check(self):
        page = (ROOT / "docs/doctor.md").read_text().splitlines()
        rows = [line for line in page if line.startswith("| `")]
        self.assertEqual(rows, [row_of(check) for check in checks()])
        self.assertGreater(len(rows), 40)

    def test_every_check_leads_to_a_part_of_the_runbook(self):
        for check in checks():
            page, anchor = check["page"].split("#")
            with self.subTest(check["check"]):
                self.assertIn(anchor, anchors_of(ROOT / page))

    def test_all_flags_of_servers_are_known_and_no_others(self):
        for program, kind in (("embla-coordinator", "coordinator"), ("embla-shard", "shard")):
            with self.subTest(program), tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "all.conf")
                file.write_text("".join(f'{flag} = ""\n' for flag in flags_of(program)))
                self.assertEqual(self.unknown(kind, file), [])
                source = (ROOT / "tools/embla/doctor_config.cc").read_text()
                other = "Shards" if kind == "coordinator" else "Coordinators"
                text = re.sub(rf"kOf{other} =.*?;", "", source, flags=re.DOTALL)
                lists = re.findall(r"kOf\w+ =(.*?);", text, flags=re.DOTALL)
                known = re.sub(r'["\n]', " ", " ".join(lists)).split()
                self.assertEqual(sorted(known), sorted(flags_of(program)))

    def unknown(self, kind, file):
        findings = found(f"--{kind}-config", file)
        return [what for check, what in findings if check == "config-unknown-flag"]

    def test_files_are_read_as_servers_read_them(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "shard.conf")
            file.write_text('# A comment.\nlisten = "127.0.0.1:0"\nlisen = "x"\ninsecure = true\n')
            self.assertEqual(
                self.unknown("shard", file), ["embla-shard has no flag lisen; listen is one"]
            )
            missing = found("--shard-config", Path(folder, "none.conf"))
            self.assertIn("config-unreadable", [check for check, _ in missing])

    def test_the_packages_files_have_no_findings(self):
        findings = found(
            "--coordinator-config", ROOT / "deploy/config/coordinator.conf",
            "--shard-config", ROOT / "deploy/config/shard.conf",
        )  # fmt: skip
        names = [name for name, _ in findings]
        about_files = [n for n in names if n.startswith(("config", "port-twice", "listen"))]
        self.assertEqual(about_files, [])


class FormatsTest(unittest.TestCase):
    def test_upgrade_check_knows_them(self):
        source = (ROOT / "tools/embla/release_formats.cc").read_text()
        last = re.findall(r"kFiles\d+ = \{(.*?)\};", source, flags=re.DOTALL)[-1]
        known = {name: int(number) for name, number in re.findall(r'\{"(\w+)", (\d+)\}', last)}
        page = (ROOT / "docs/compatibility.md").read_text()
        words = {
            "journal": "journal of",
            "log": "log of",
            "snapshots": "snapshots of",
            "identity": "identity of",
            "state": "coordinator's state",
            "plan": "plan as JSON",
        }
        self.assertEqual(set(known), set(words))
        files = {
            "journal": "journal_records",
            "log": "node_log",
            "snapshots": "snapshot_records",
            "identity": "node_identity",
            "state": "state_log",
            "plan": "plan",
        }
        for name, number in known.items():
            with self.subTest(name):
                row = re.search(rf"(?m)^\| {words[name]}[^|]*\| (\d+) \|", page)
                self.assertEqual(int(row.group(1)), number)
                golden = (ROOT / "tests/golden").glob(f"{files[name]}_v*")
                versions = [int(re.search(r"_v(\d+)", file.name).group(1)) for file in golden]
                self.assertEqual(max(versions), number)


if __name__ == "__main__":
    BIN_DIR = Path(sys.argv.pop(1)).resolve()
    unittest.main()
