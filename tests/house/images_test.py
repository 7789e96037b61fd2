"""The container files say what the tree and the programs can do. No container engine is needed.

Usage: images_test.py BIN_DIR. Checks the two Dockerfiles (pinned bases, two stages, no root,
sources that exist, libraries that the programs load) and that every flag in compose.yaml is a flag
of the program it is given to. tests/house/compose_test.py runs those commands.
"""

import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILES = ["docker/Dockerfile", "docker/Dockerfile.cuda"]
PROGRAMS = ["embla", "embla-coordinator", "embla-shard", "embla-train"]
BIN_DIR = None
# In every Debian image, slim or not.
BASE_PACKAGES = {"libc6", "libgcc-s1", "libstdc++6"}


def instructions(path):
    """[(keyword, arguments)] of a Dockerfile, continued lines joined, comments left out."""
    lines = [line for line in Path(ROOT, path).read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(keyword, " ".join(rest.split())) for keyword, rest in found]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


class DockerfileTest(unittest.TestCase):
    def each(self):
        for path in DOCKERFILES:
            with self.subTest(path):
                yield path, instructions(path)

    def test_bases_are_pinned_and_the_build_stage_stays_behind(self):
        for _, found in self.each():
            bases = [rest for keyword, rest in found if keyword == "FROM"]
            self.assertEqual(len(bases), 2)
            self.assertTrue(bases[0].endswith(" AS build"))
            for base in bases:
                self.assertRegex(base.split()[0], r"^[\w./-]+:[\w.-]+$")
                self.assertFalse(base.split()[0].endswith(":latest"))

    def test_runs_as_a_numbered_user_without_shell_form(self):
        for _, found in self.each():
            last = found[max(i for i, (k, _) in enumerate(found) if k == "FROM"):]
            users = [rest for keyword, rest in last if keyword == "USER"]
            self.assertRegex(users[-1], r"^[1-9]\d*$")
            commands = [rest for keyword, rest in last if keyword in {"CMD", "ENTRYPOINT"}]
            self.assertTrue(all(command.startswith("[") for command in commands))

    def test_known_instructions_only(self):
        known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "CMD", "ENTRYPOINT", "LABEL"}
        for _, found in self.each():
            self.assertLessEqual({keyword for keyword, _ in found}, known)

    def test_copies_what_exists(self):
        for _, found in self.each():
            for keyword, rest in found:
                if keyword != "COPY" or "--from=" in rest:
                    continue
                for source in rest.split()[:-1]:
                    self.assertTrue(Path(ROOT, source).exists(), source)

    def test_installs_little_and_cleans_up(self):
        for _, found in self.each():
            for keyword, rest in found:
                if keyword == "RUN" and "apt-get install" in rest:
                    self.assertIn("--no-install-recommends", rest)
                if keyword == "RUN" and ("apt-get" in rest or "install_packages" in rest):
                    self.assertIn("rm -rf /var/lib/apt/lists/*", rest)

    def test_presets_exist(self):
        presets = Path(ROOT, "CMakePresets.json").read_text()
        for _, found in self.each():
            for name in re.findall(r"--preset (\S+)", " ".join(rest for _, rest in found)):
                self.assertIn(f'"name": "{name}"', presets)

    def test_image_has_every_library_the_programs_load(self):
        """On Debian 12 only: there the installed packages are those of docker/Dockerfile."""
        if "bookworm" not in Path("/etc/os-release").read_text():
            self.skipTest("not Debian 12")
        install = next(r for k, r in instructions(DOCKERFILES[0])[1:] if "apt-get install" in r)
        words = shlex.split(install.split("apt-get install", 1)[1].split("&&")[0])
        asked = {word for word in words if not word.startswith("-")}
        self.assertEqual([p for p in sorted(asked) if run("dpkg-query", "-W", p).returncode], [])
        have = closure(asked)
        needed = {}
        for program in PROGRAMS:
            for package, library in packages_of(Path(BIN_DIR, program)):
                needed[package] = f"{program} loads {library}"
        missing = {p: why for p, why in needed.items() if p not in have | BASE_PACKAGES}
        self.assertEqual(missing, {})


def closure(packages):
    """The packages and everything they depend on, as installed here."""
    fields = run("dpkg-query", "-W", "-f=${Package}=${Depends},${Pre-Depends}\\n").stdout
    depends = dict(line.split("=", 1) for line in fields.splitlines())
    have, queue = set(), sorted(packages)
    while queue:
        package = queue.pop()
        if package in have:
            continue
        have.add(package)
        for field in re.split(r"[,|]", depends.get(package, "")):
            if name := re.match(r"\s*([\w.+-]+)", field):
                queue.append(name.group(1))
    return have


def packages_of(program):
    """(package, library) of every shared library the dynamic linker loads for `program`."""
    paths = re.findall(r"=> (/\S+)", run("ldd", str(program)).stdout)
    # The same file has several names where /lib is a link to /usr/lib.
    names = {n for p in paths for n in (p, "/usr" + p, str(Path(p).resolve()))}
    for line in run("dpkg-query", "-S", *sorted(names)).stdout.splitlines():
        owner, path = line.rsplit(": ", 1)
        yield owner.split(":")[0], path


def commands_of(service):
    """The command of a service, or those of our programs in its script."""
    if service["command"][0] != "sh":
        return [service["command"]]
    script = service["command"][-1].replace("$$", "$")
    return [shlex.split(found) for found in re.findall(r"\bembla .*", script)]


class ComposeTest(unittest.TestCase):
    def setUp(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml here")
        self.services = yaml.safe_load(Path(ROOT, "deploy/compose.yaml").read_text())["services"]

    def test_every_flag_is_a_flag_of_its_program(self):
        for name, service in self.services.items():
            with self.subTest(name):
                commands = commands_of(service)
                if "healthcheck" in service:
                    commands.append(service["healthcheck"]["test"][1:])
                self.assertTrue(commands)
                for program, *arguments in commands:
                    self.assertIn(program, PROGRAMS)
                    flags = [a.split("=")[0] for a in arguments if a.startswith("--")]
                    verbs = [a for a in arguments if re.fullmatch("[a-z]+", a)]
                    usage = run(str(Path(BIN_DIR, program)), *verbs, "--help").stdout
                    for flag in flags:
                        self.assertRegex(usage, rf"(?m)(?:^|[\s,]){re.escape(flag)}(?![\w-])")

    def test_services_are_locked_down(self):
        for name, service in self.services.items():
            with self.subTest(name):
                self.assertTrue(service["read_only"])
                self.assertEqual(service["cap_drop"], ["ALL"])
                self.assertNotIn("privileged", service)

    def test_every_connection_is_over_tls(self):
        for name, service in self.services.items():
            with self.subTest(name):
                self.assertNotIn("--insecure", service["command"])
                if name != "certs":
                    self.assertIn("EMBLA_TLS_CERT", service["environment"])
                    folder = {"train": "admin", "cli": "admin"}.get(name, name)
                    certificates = next(v for v in service["volumes"] if isinstance(v, dict))
                    self.assertEqual(certificates["volume"], {"subpath": folder})

    def test_dependencies_are_services(self):
        for service in self.services.values():
            self.assertLessEqual(set(service.get("depends_on", [])), set(self.services))


if __name__ == "__main__":
    BIN_DIR = Path(sys.argv.pop(1)).resolve()
    unittest.main()
