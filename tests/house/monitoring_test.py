"""Alerts, dashboard and configuration of deploy/monitoring, against what a cluster really exports.

Usage: monitoring_test.py BIN_DIR. Starts a coordinator and two nodes, trains and moves rows; their
/metrics pass `promtool check metrics`, and every query of the dashboard gives a result on them.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy/monitoring"
DASHBOARDS = sorted((FOLDER / "grafana/dashboards").glob("*.json"))
SKIPPED = 77
SECONDS_MAX = 120
LOOK_SECONDS = 0.02  # Between two looks at a file.
BIN_DIR = None
# Series that a cluster without GPUs, copies and averagings does not have, as one with them would.
OTHERS = """
embla_gpu_stopped{device="0"} 0
embla_gpu_kernel_seconds_total{device="0"} 5
embla_row_cache_hits_total{table="users",device="0"} 500
embla_row_cache_misses_total{table="users",device="0"} 50
embla_replica_divergence_rms{table="users"} 0.01
embla_connections_refused_total{reason="address"} 3
embla_requests_total{code="RESOURCE_EXHAUSTED",method="Update"} 3
"""


def run(*command, **options):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
        **options,
    )  # fmt: skip
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def has_ended(process, seconds):
    """Waits for the end of `process`, at most so long."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


class Cluster:
    def __init__(self, work):
        self.work = Path(work)
        self.running = []
        self.ports = {}

    def start(self, name, program, *flags):
        port_file = self.work / f"{name}.json"
        with open(self.work / f"{name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [str(BIN_DIR / program), "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
                 f"--port-file={port_file}", *flags],
                stdout=log, stderr=log,
            )  # fmt: skip
        self.running.append(process)
        give_up = time.monotonic() + SECONDS_MAX
        while not port_file.exists():
            if has_ended(process, LOOK_SECONDS) or time.monotonic() > give_up:
                raise AssertionError((self.work / f"{name}.log").read_text())
        self.ports[name] = json.loads(port_file.read_text())

    def stop(self):
        for process in reversed(self.running):
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait(SECONDS_MAX)

    def scrape(self, name):
        with urllib.request.urlopen(f"http://{self.ports[name]['metrics']}/metrics") as answer:
            return answer.read().decode()


@cache
def scrapes():
    """{name of the process: its /metrics} of a cluster that has trained and moved rows."""
    with tempfile.TemporaryDirectory() as work:
        cluster = Cluster(work)
        try:
            cluster.start("coordinator", "embla-coordinator", "--admin-listen=127.0.0.1:0",
                          f"--state-dir={work}/state")  # fmt: skip
            ports = cluster.ports["coordinator"]
            for name in ("node1", "node2"):
                cluster.start(name, "embla-shard", f"--name={name}", "--devices=cpu:1",
                              f"--coordinator={ports['listen']}", f"--data-dir={work}/{name}",
                              "--memory-per-device=256MiB")  # fmt: skip
            addresses = [f"--coordinator={ports['listen']}", f"--admin={ports['admin']}"]
            run(BIN_DIR / "embla-train", *addresses, "--wait", "--generate=4000", "--epochs=1",
                "--trainers=1", "--zch", "--zch-capacity=4000", "--nodes=node1")  # fmt: skip
            run(BIN_DIR / "embla", *addresses, "reshard", "--table=model_linear", "--shards=2",
                "--wait")  # fmt: skip
            return {name: cluster.scrape(name) for name in cluster.ports}
        finally:
            cluster.stop()


def series():
    """input_series of promtool: a counter grows by its value per minute, a gauge stays."""
    found = {}
    for name, text in [*scrapes().items(), ("node1", OTHERS)]:
        job = "embla-coordinator" if name == "coordinator" else "embla-shard"
        for line in text.splitlines():
            if not line or line.startswith("#"):
                continue
            selector, value = line.rsplit(" ", 1)
            metric, _, labels = selector.rstrip("}").partition("{")
            grows = re.search(r"_(total|bucket|count|sum)$", metric)
            labels = ",".join(filter(None, [labels, f'instance="{name}"', f'job="{job}"']))
            if value != "NaN":
                found[f"{metric}{{{labels}}}"] = (
                    f"0+{value}x20" if grows else f"{value}+0x20"
                )
    return [{"series": s, "values": v} for s, v in found.items()]


def queries():
    """(panel, query) of every dashboard, with Grafana's variables as it would fill them in."""
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                query = target["expr"].replace("$__rate_interval", "5m")
                yield panel["title"], query.replace("$instance", ".*")


class MonitoringTest(unittest.TestCase):
    def test_configuration_and_rules_are_valid(self):
        # Its certificates are in a volume.
        run("promtool", "check", "config", "--syntax-only", FOLDER / "prometheus.yaml")

    def test_alerts_fire_when_they_should(self):
        run("promtool", "test", "rules", FOLDER / "alerts_test.yaml")

    def test_every_alert_is_tested_and_has_a_page(self):
        rules = (FOLDER / "alerts.yaml").read_text()
        tests = (FOLDER / "alerts_test.yaml").read_text()
        page = (ROOT / "docs/alerts.md").read_text()
        alerts = re.findall(r"alert: (\w+)", rules)
        self.assertEqual(sorted(alerts), sorted(re.findall(r"(?m)^## (\w+)$", page)))
        links = re.findall(r"runbook_url: (\S+)", rules)
        self.assertEqual(links, [f"docs/alerts.md#{alert.lower()}" for alert in alerts])
        for alert in alerts:
            self.assertRegex(tests, rf"alertname: {alert}\n\s+exp_alerts:\n\s+- ", alert)

    def test_alerts_and_dashboard_name_metrics_that_there_are(self):
        page = (ROOT / "docs/metrics.md").read_text()
        texts = [(FOLDER / "alerts.yaml").read_text(), *(p.read_text() for p in DASHBOARDS)]
        for name in set(re.findall(r"\b(?:embla|process)_[a-z0-9_]+", "\n".join(texts))):
            base = re.sub(r"_(bucket|count|sum)$", "", name)
            self.assertTrue(f"`{base}`" in page, f"docs/metrics.md has no {name}")

    def test_promtool_finds_nothing_wrong_with_the_metrics(self):
        for name, text in scrapes().items():
            with self.subTest(name):
                self.assertEqual(run("promtool", "check", "metrics", input=text), "")

    def test_every_query_of_the_dashboard_has_a_result(self):
        found = list(queries())
        self.assertGreater(len(found), 20)
        document = {
            "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m",
                "input_series": series(),
                "promql_expr_test": [
                    {"expr": f"count({query}) > bool 0", "eval_time": "10m",
                     "exp_samples": [{"labels": "{}", "value": 1}]}
                    for _, query in found
                ],
            }],
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as work:
            path = Path(work, "queries.yaml")  # JSON is YAML.
            path.write_text(json.dumps(document))
            run("promtool", "test", "rules", path)

    def test_the_dashboard_is_one_that_grafana_takes(self):
        for path in DASHBOARDS:
            document = json.loads(path.read_text())
            ids = [panel["id"] for panel in document["panels"]]
            self.assertEqual(len(ids), len(set(ids)))
            cells = set()
            for panel in document["panels"]:
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24)
                taken = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                         for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
                self.assertFalse(cells & taken, panel["title"])
                cells |= taken
                if panel["type"] != "row":
                    self.assertTrue(panel["description"])
                    self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])


class ComposeTest(unittest.TestCase):
    def test_services_are_pinned_and_locked_and_mount_what_exists(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml here")
        services = yaml.safe_load((ROOT / "deploy/compose.monitoring.yaml").read_text())["services"]
        for name, service in services.items():
            with self.subTest(name):
                self.assertRegex(service["image"], r":v?\d+\.\d+\.\d+$")
                self.assertTrue(service["read_only"])
                self.assertEqual(service["cap_drop"], ["ALL"])
                for port in service["ports"]:
                    self.assertTrue(port.startswith("127.0.0.1:"))
                for volume in service["volumes"]:
                    if str(volume).startswith("."):
                        self.assertTrue((ROOT / "deploy" / volume.split(":")[0]).exists(), volume)


if __name__ == "__main__":
    BIN_DIR = Path(sys.argv.pop(1)).resolve()
    if shutil.which("promtool") is None:
        print("SKIPPED: no promtool here; deploy/install_packages.sh --tests installs it")
        sys.exit(SKIPPED)
    unittest.main()
