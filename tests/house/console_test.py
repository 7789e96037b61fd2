"""The console in Chromium, over a cluster that trains.

Usage: console_test.py BIN_DIR CHROMIUM, run by console.sh, whose environment has axe and a
WebSocket client. Starts a coordinator and two nodes.
"""

import importlib.resources
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from browser import LOOK_SECONDS, SECONDS_MAX, Browser

BIN_DIR = None
CHROMIUM = None
SHOTS = os.environ.get("EMBLA_CONSOLE_SHOTS")
AXE = """axe.run().then((found) =>
  found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html)}`))"""
HOSTILE = '<img src=x onerror="window.hacked=true"><script>window.hacked=true</script>'

# Every text that the page gets is markup that would do harm; numbers stay.
PLANT = """(() => {
  const hostile = %s;
  const known = new Set(['leader', 'live', 'down', 'running', 'cpu', 'groups']);
  const plantAll = (object) => Object.fromEntries(
    Object.entries(object).map(([name, value]) => [name, plant(value)]));
  const plant = (value) => {
    if (Array.isArray(value)) return value.map(plant);
    if (value !== null && typeof value === 'object') return plantAll(value);
    return typeof value === 'string' && !known.has(value) ? value + hostile : value;
  };
  const real = window.fetch;
  window.fetch = async (...args) => {
    const reply = await real(...args);
    const document = plant(await reply.json());
    return { ok: reply.ok, status: reply.status, json: async () => document };
  };
})()""" % json.dumps(HOSTILE)


def run(*command):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


class Cluster:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="console")
        self.work = Path(self.folder.name)
        self.running = {}
        self.ports = {}
        self.start("coordinator", "embla-coordinator", "--admin-listen=127.0.0.1:0",
                   "--metrics-listen=127.0.0.1:0", f"--audit-log={self.work}/audit",
                   f"--state-dir={self.work}/state", "--heartbeat-ms=200",
                   "--dead-after-ms=1000")  # fmt: skip
        for name in ("alpha", "beta"):
            self.start(name, "embla-shard", f"--name={name}", "--devices=cpu:2",
                       f"--coordinator={self.ports['coordinator']['listen']}",
                       "--memory-per-device=64MiB")  # fmt: skip
        self.url = f"http://{self.ports['coordinator']['metrics']}/console/"
        self.embla("table", "create", "--name=clicks", "--rows=200000", "--dim=32",
                   "--sharding=row_wise")  # fmt: skip
        self.embla("table", "create", "--name=users", "--rows=40000", "--dim=64",
                   "--sharding=grid_shard", "--min-partition=32")  # fmt: skip
        self.embla("table", "create", "--name=items", "--zch", "--capacity=20000", "--dim=16",
                   "--sharding=row_wise")  # fmt: skip

    def start(self, name, program, *flags):
        port_file = self.work / f"{name}.json"
        with open(self.work / f"{name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [str(BIN_DIR / program), "--listen=127.0.0.1:0", f"--port-file={port_file}",
                 *flags],
                stdout=log, stderr=log,
            )  # fmt: skip
        self.running[name] = process
        give_up = time.monotonic() + SECONDS_MAX
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > give_up:
                raise AssertionError((self.work / f"{name}.log").read_text())
            time.sleep(LOOK_SECONDS)
        self.ports[name] = json.loads(port_file.read_text())

    def embla(self, *words):
        return run(BIN_DIR / "embla", "--admin", self.ports["coordinator"]["admin"], *words)

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def stop(self):
        for name in list(self.running):
            self.kill(name)
        self.folder.cleanup()


class ConsoleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.stop)
        cls.browser = Browser(CHROMIUM)
        cls.addClassCleanup(cls.browser.close)

    def open(self, path="", before=""):
        page = self.browser.open(before)
        self.addCleanup(page.close)
        page.prefer("light")
        page.go(self.cluster.url + path)
        page.await_that("document.querySelector('main')?.children.length > 0", "the first view")
        return page

    @staticmethod
    def await_view(page, place):
        """Waits until the view is shown and keys are about its list."""
        is_shown = f"location.hash.startsWith('{place}')"
        has_focus = "document.activeElement.tagName === 'MAIN'"
        has_list = "document.querySelector('main [data-arrows] a[href]') !== null"
        page.await_that(" && ".join([is_shown, has_focus, has_list]), place)

    def shoot(self, page, name):
        if SHOTS:
            page.picture(Path(SHOTS, f"{name}.png"))

    def views(self):
        """Addresses of all views, and words by which each is complete."""
        return {
            "overview": ("#/", "Devices"), "nodes": ("#/nodes", "beta"),
            "node": ("#/node/1", "Last heard"), "device": ("#/device/1/0", "users"),
            "plan": ("#/plan", "clicks"), "table": ("#/table/2", "40,000 rows"),
            "jobs": ("#/jobs", "reshard"), "job": ("#/job/1", "Writes paused"),
            "sessions": ("#/sessions", "Opened"), "audit": ("#/audit", "StartJob"),
        }  # fmt: skip

    def test_every_view_is_without_errors_and_axe_finds_nothing_in_light_and_dark(self):
        self.cluster.embla("reshard", "--table=clicks", "--shards=2", "--wait")
        page = self.open()
        axe = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
        page.run(axe)
        for scheme in ("light", "dark"):
            page.prefer(scheme)
            for name, (path, words) in self.views().items():
                with self.subTest(view=name, scheme=scheme):
                    page.run(f"location.hash = {json.dumps(path)}")
                    page.await_text(words)
                    self.assertEqual(page.run(AXE), [])
                    self.shoot(page, f"{name}-{scheme}")
        page.resize(420, 800)
        page.await_that("document.documentElement.scrollWidth <= innerWidth", "a narrow page")
        self.shoot(page, "narrow")
        self.assertEqual(page.problems, [])
        here = self.cluster.url.removesuffix("console/")
        self.assertEqual([r for r in page.requests if not r[1].startswith(here)], [])
        self.assertEqual({method for method, _ in page.requests}, {"GET"})

    def test_the_keyboard_reaches_everything(self):
        page = self.open()
        focused = "document.activeElement.innerText"
        page.press("2")
        self.await_view(page, "#/nodes")
        page.press("ArrowDown")
        page.await_that(f"{focused} === 'alpha'", "the first node")
        page.press("ArrowDown")
        page.await_that(f"{focused} === 'beta'", "the next node")
        page.press("Enter")
        self.await_view(page, "#/node/")
        page.press("ArrowDown")
        page.press("ArrowDown")
        page.await_that(f"{focused} === 'Device 1'", "its second device")
        page.press("Enter")
        self.await_view(page, "#/device/")
        page.await_text("Tables here")
        page.press("Escape")
        self.await_view(page, "#/node/")
        page.press("Escape")
        self.await_view(page, "#/nodes")

        page.press("/")
        page.await_that("document.activeElement.id === 'find'", "the field to find a table")
        page.type("use")
        page.await_that("document.querySelectorAll('.card').length === 1", "one table")
        self.assertEqual(page.run("document.activeElement.id"), "find", "it keeps the focus")
        page.press("Escape")
        page.run("document.querySelector('main').focus()")
        page.press("ArrowDown")
        page.press("Enter")
        page.await_that("document.querySelectorAll('.picture .cell').length === 4", "its slices")
        place = "document.activeElement.getAttribute('aria-label')"
        page.press("ArrowDown")
        first = r"^(alpha|beta) / [01]: rows 0 to 19,999, columns 0 to 31, 2,048 units$"
        self.assertRegex(page.run(place), first)
        page.press("ArrowRight")
        self.assertRegex(page.run(place), r"rows 0 to 19,999, columns 32 to 63, 2,048 units$")
        page.press("ArrowDown")
        self.assertRegex(page.run(place), r"rows 20,000 to 39,999, columns 32 to 63, ")
        page.press("Enter")
        page.await_text("Tables here")
        page.press("Escape")
        page.press("6")
        page.await_text("CreateTable")
        self.assertEqual(page.problems, [])

    def test_what_happens_is_seen_without_a_reload(self):
        page = self.open("#/plan")
        page.await_text("clicks")
        self.cluster.embla("table", "create", "--name=late", "--rows=1000", "--dim=8",
                           "--sharding=table_wise")  # fmt: skip
        page.await_text("late")
        self.cluster.embla("table", "drop", "late", "--yes")
        page.await_that("!document.body.innerText.includes('late')", "the table's end")
        run(BIN_DIR / "embla-train", "--coordinator", self.cluster.ports["coordinator"]["listen"],
            "--admin", self.cluster.ports["coordinator"]["admin"], "--wait", "--generate=2000",
            "--epochs=1", "--trainers=1")  # fmt: skip
        page.press("1")
        page.await_that("/Lookups[^/]*[1-9][^/]*\\/s/.test(document.body.innerText)", "a rate")
        self.assertEqual(page.problems, [])

    def test_nothing_that_the_cluster_says_is_markup(self):
        self.cluster.embla("reshard", "--table=clicks", "--shards=3", "--wait")
        page = self.open(before=PLANT)
        for path, words in self.views().values():
            page.run(f"location.hash = {json.dumps(path)}")
            page.await_text(words)
            if path != "#/sessions":
                page.await_text("<img src=x")
            made = "document.querySelectorAll('main img, main script').length"
            self.assertEqual(page.run(made), 0)
        self.assertFalse(page.run("'hacked' in window"))
        self.assertEqual(page.problems, [])


class TroubleTest(unittest.TestCase):
    def test_a_dead_node_and_a_dead_coordinator_are_said_at_once(self):
        cluster = Cluster()
        self.addCleanup(cluster.stop)
        browser = Browser(CHROMIUM)
        self.addCleanup(browser.close)
        page = browser.open()
        page.go(cluster.url)
        page.await_text("All is well")
        cluster.kill("beta")
        page.await_text("Node beta is down")
        if SHOTS:
            page.picture(Path(SHOTS, "down.png"))
        cluster.kill("coordinator")
        page.await_text("No news for")


if __name__ == "__main__":
    BIN_DIR, CHROMIUM = Path(sys.argv[1]).resolve(), sys.argv[2]
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
