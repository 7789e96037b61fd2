"""The Debian packages have what they should, ask for what their programs load, and say what it is.

Usage: packages_test.py BUILD_DIR. deploy/package.sh packs what is built there; nothing is
installed. tests/house/debian_root.sh installs the packages.
"""

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SKIPPED = 77
NAMES = ["embla-cli", "embla-server", "libembla-dev"]
BUILD_DIR = None
FOLDER = None


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {(done.stdout + done.stderr).decode()[-3000:]}")
    return done.stdout


def package(name):
    return next(FOLDER.glob(f"{name}_*.deb"))


def field(name, key):
    return run("dpkg-deb", "--field", package(name), key).decode().strip()


def depends(name):
    return {word.split()[0] for word in field(name, "Depends").split(", ")}


def files(name):
    """{path: (member, content)} of what the package installs, without folders."""
    with tarfile.open(fileobj=io.BytesIO(run("dpkg-deb", "--fsys-tarfile", package(name)))) as tar:
        return {m.name.lstrip("."): (m, tar.extractfile(m).read()) for m in tar if m.isfile()}


def version():
    return re.search(r"set\(EMBLA_VERSION ([\d.]+)\)", (ROOT / "CMakeLists.txt").read_text())[1]


class PackagesTest(unittest.TestCase):
    def test_there_are_three_of_the_version_that_the_tree_states(self):
        architecture = run("dpkg", "--print-architecture").decode().strip()
        self.assertEqual([p.name for p in sorted(FOLDER.glob("*.deb"))],
                         [f"{n}_{version()}_{architecture}.deb" for n in NAMES])  # fmt: skip
        self.assertEqual({field(name, "Version") for name in NAMES}, {version()})

    def test_they_hold_what_belongs_to_them(self):
        expected = {
            "embla-server": ["/usr/bin/embla-coordinator", "/usr/bin/embla-shard",
                             "/etc/embla/coordinator.conf", "/etc/embla/shard.conf",
                             "/usr/lib/systemd/system/embla-coordinator.service",
                             "/usr/lib/systemd/system/embla-shard@.service",
                             "/usr/share/man/man8/embla-shard.8.gz"],
            "embla-cli": ["/usr/bin/embla", "/usr/bin/embla-train",
                          "/usr/share/man/man1/embla.1.gz",
                          "/usr/share/bash-completion/completions/embla"],
            "libembla-dev": ["/usr/include/embla/client.h", "/usr/lib/libembla_client.a",
                             "/usr/lib/cmake/embla/embla-config.cmake"],
        }  # fmt: skip
        for name, wanted in expected.items():
            found = files(name)
            documents = [f"/usr/share/doc/{name}/{file}" for file in
                         ("NOTICE", "copyright", "changelog.gz", "sbom.spdx.json")]  # fmt: skip
            for path in [*wanted, *documents]:
                self.assertIn(path, found)
            programs = {path for path in found if path.startswith("/usr/bin/")}
            self.assertEqual(programs, {path for path in wanted if path.startswith("/usr/bin/")})

    def test_files_are_roots_and_nobody_elses_to_write(self):
        for name in NAMES:
            for path, (member, _) in files(name).items():
                wanted = 0o755 if path.startswith("/usr/bin/") else 0o644
                self.assertEqual((member.uid, member.gid, member.mode), (0, 0, wanted), path)

    def test_they_ask_for_what_their_programs_load(self):
        self.assertLessEqual({"adduser", "libgrpc++1.51", "libsystemd0", "libssl3"}
                             if "bookworm" in Path("/etc/os-release").read_text()
                             else {"adduser", "libsystemd0"}, depends("embla-server"))  # fmt: skip
        self.assertNotIn("libsystemd0", depends("embla-cli"))
        self.assertIn("libgrpc++-dev", depends("libembla-dev"))

    def test_configuration_is_the_operators(self):
        listed = run("dpkg-deb", "--info", package("embla-server"), "conffiles").decode().split()
        installed = [path for path in files("embla-server") if path.startswith("/etc/")]
        self.assertEqual(sorted(listed), sorted(installed))

    def test_scripts_start_and_delete_nothing(self):
        for script in ("postinst", "postrm"):
            text = run("dpkg-deb", "--info", package("embla-server"), script).decode()
            self.assertNotRegex(text, r"systemctl (--\S+ )*(start|restart|enable|stop)|rm -r")
            self.assertIn("\nset -e\n", text)

    def test_programs_are_stripped(self):
        content = files("embla-cli")["/usr/bin/embla"][1]
        self.assertNotIn(b".debug_info\0", content)

    def test_the_bill_names_every_library_with_its_version(self):
        bills = {files(n)[f"/usr/share/doc/{n}/sbom.spdx.json"][1] for n in NAMES}
        self.assertEqual(len(bills), 1)
        bill = json.loads(bills.pop())
        packages = {p["name"]: p for p in bill["packages"]}
        self.assertEqual(packages["embla"]["versionInfo"], version())
        asked = {name for p in ("embla-server", "embla-cli") for name in depends(p)}
        self.assertLessEqual(asked - {"adduser"}, set(packages))
        for name in asked - {"adduser"}:
            installed = run("dpkg-query", "-W", "-f=${Version}", name).decode()
            self.assertEqual(packages[name]["versionInfo"], installed)
        known = {p["SPDXID"] for p in bill["packages"]} | {"SPDXRef-DOCUMENT"}
        related = {r["relatedSpdxElement"] for r in bill["relationships"]}
        self.assertEqual(related, known - {"SPDXRef-DOCUMENT"})
        self.assertEqual(len(known), len(bill["packages"]) + 1)

    def test_the_same_build_gives_the_same_documents(self):
        for path in ("changelog.gz", "CHANGELOG.md.gz"):
            content = files("embla-cli")[f"/usr/share/doc/embla-cli/{path}"][1]
            self.assertEqual(content[4:8], b"\0\0\0\0", "a time in it")
        text = gzip.decompress(files("embla-cli")["/usr/share/doc/embla-cli/changelog.gz"][1])
        self.assertTrue(text.decode().startswith(f"embla ({version()}) "))


def main():
    global BUILD_DIR, FOLDER
    BUILD_DIR = Path(sys.argv.pop(1)).resolve()
    for tool in ("cpack", "dpkg-shlibdeps", "dpkg-deb"):
        if shutil.which(tool) is None:
            print(f"SKIPPED: no {tool} here; deploy/install_packages.sh installs it")
            return SKIPPED
    if not (BUILD_DIR / "bin/embla-train").exists() or not (BUILD_DIR / "pages").exists():
        print(f"SKIPPED: {BUILD_DIR} has no programs that are packed")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        FOLDER = Path(folder)
        run(ROOT / "deploy/package.sh", "--build", BUILD_DIR, folder)
        return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
