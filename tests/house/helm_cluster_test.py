"""Clusters over TLS as the chart and docs/install.md say it, outside containers, on loopback.

Usage: helm_cluster_test.py BIN_DIR. The page's commands make certificates and secrets; programs run
with the arguments, hooks and probes of deploy/helm/rendered/small.yaml and ha.yaml. What a pod
gives is replaced: volumes are folders, listeners take free ports, names of services become
addresses, rows get less memory, `embla certs` makes the certificates that cert-manager would make,
and etcd is one member without TLS.
"""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

try:
    import yaml
except ImportError:
    yaml = None

ROOT = Path(__file__).resolve().parent.parent.parent
BIN_DIR = None
SKIPPED = 77
SECONDS_MAX = 60
LOOK_SECONDS = 0.05
LISTENERS = {"--listen": "listen", "--admin-listen": "admin", "--metrics-listen": "metrics"}
# Stands in for a cluster of Kubernetes: a secret is a folder of its files.
KUBECTL = """
kubectl() {
  local all="$*" words word folder
  [[ "$all" == *" create secret generic "* ]] || return 0
  words="${all##* create secret generic }"
  folder="secrets/${words%% *}"
  mkdir -p "$folder"
  for word in ${words#* }; do cp "${word#--from-file=}" "$folder"; done
}
helm() { :; }
"""


def wait_for(condition, what):
    give_up = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {SECONDS_MAX} s: {what}")
        time.sleep(LOOK_SECONDS)


def free_address():
    """A free port of a loopback address that is this process's own: nobody else takes it."""
    pid = os.getpid()
    host = f"127.{64 + (pid >> 16) % 64}.{pid >> 8 & 255}.{pid & 255}"
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


def commands_of_page():
    """The first block of commands below the heading Kubernetes."""
    page = (ROOT / "docs/install.md").read_text()
    text = page.split("## Kubernetes\n")[1]
    block = re.search(r"(?:^    .*\n)+", text, re.MULTILINE).group()
    return re.sub("^    ", "", block, flags=re.MULTILINE)


class Pod:
    def __init__(self, name, manifest, cluster):
        self.name = name
        self.cluster = cluster
        self.spec = manifest["spec"]["template"]["spec"]
        self.container = self.spec["containers"][0]
        self.ports = {}
        self.process = None

    def outside(self, container, text):
        """The text, with the pod's name, folders of its volumes, and addresses of services."""
        text = text.replace("$(POD_NAME)", self.name)
        secrets = {v["name"]: v["secret"]["secretName"] for v in self.spec["volumes"]
                   if "secret" in v}  # fmt: skip
        for mount in sorted(container["volumeMounts"], key=lambda m: -len(m["mountPath"])):
            volume = mount["name"]
            folder = f"secrets/{secrets[volume]}" if volume in secrets else f"{self.name}/{volume}"
            text = text.replace(mount["mountPath"], str(self.cluster.work / folder))
        for name, address in self.cluster.addresses.items():
            text = text.replace(name, address)
        return text

    def environment(self, container):
        values = {"PATH": f"{BIN_DIR}:{os.environ['PATH']}", "POD_NAME": self.name}
        stated = {e["name"]: e["value"] for e in container.get("env", []) if "value" in e}
        return values | {k: self.outside(container, v) for k, v in stated.items()}

    def make_volumes(self):
        """Folders, with certificates where cert-manager's driver would put them."""
        for volume in self.spec["volumes"] + [{"name": "state"}, {"name": "rows"}]:
            folder = self.cluster.work / self.name / volume["name"]
            folder.mkdir(parents=True, exist_ok=True)
            if "csi" in volume:
                uri = volume["csi"]["volumeAttributes"]["csi.cert-manager.io/uri-sans"]
                role, name = uri.replace("${POD_NAME}", self.name).split("/")[-2:]
                self.cluster.issue(role, name, folder)

    def start(self):
        port_file = self.cluster.work / f"{self.name}.json"
        words = [str(BIN_DIR / self.container["command"][0]), f"--port-file={port_file}"]
        for argument in self.container["args"]:
            flag = argument.split("=")[0]
            if flag == "--metrics-listen":
                words.append(argument.rsplit(":", 1)[0] + ":0")  # On loopback it is plaintext.
            elif flag in LISTENERS:
                words.append(f"{flag}=127.0.0.1:0")
            elif flag == "--memory-per-device":
                words.append(f"{flag}=64MiB")
            elif not re.fullmatch("--(admin-)?advertise|--etcd-.*", flag):
                words.append(self.outside(self.container, argument))
        with open(self.cluster.work / f"{self.name}.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log,
                                            env=self.environment(self.container))  # fmt: skip
        wait_for(lambda: port_file.exists() or self.process.poll() is not None, self.name)
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} has ended with {self.process.returncode}")
        self.ports = json.loads(port_file.read_text())

    def run_hook(self, container, command):
        words = [self.outside(container, word) for word in command]
        return subprocess.run(words, env=self.environment(container), capture_output=True,
                              text=True, check=False, timeout=SECONDS_MAX)  # fmt: skip

    def run_init(self):
        for container in self.spec.get("initContainers", []):
            done = self.run_hook(container, container["command"])
            if done.returncode != 0:
                raise AssertionError(f"{container['name']}: {done.stderr}")

    def get(self, path, scheme):
        """The HTTP status, without a certificate, as the kubelet asks."""
        port = self.ports["metrics"].rsplit(":", 1)[1]
        trust_all = ssl._create_unverified_context()
        try:
            url = f"{scheme.lower()}://127.0.0.1:{port}{path}"
            with urllib.request.urlopen(url, timeout=SECONDS_MAX, context=trust_all) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def is_fine(self, probe):
        asked = self.container[probe]["httpGet"]
        return self.get(asked["path"], asked["scheme"]) == 200

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Cluster:
    def __init__(self, work, variant):
        self.work = Path(work)
        self.addresses = {}
        documents = yaml.safe_load_all((ROOT / f"deploy/helm/rendered/{variant}.yaml").read_text())
        self.sets = {d["metadata"]["name"]: d for d in documents if d["kind"] == "StatefulSet"}
        self.running = []
        self.etcd = None

    def start(self, name, number):
        pod = Pod(f"{name}-{number}", self.sets[name], self)
        pod.make_volumes()
        pod.run_init()
        self.running.append(pod)
        pod.start()
        service = self.sets[name]["spec"]["serviceName"]
        host = service if service == name else f"{pod.name}.{service}"
        for port, listener in ((7070, "listen"), (7071, "admin")):
            if listener in pod.ports:
                self.addresses[f"{host}:{port}"] = pod.ports[listener]
        return pod

    def start_etcd(self):
        url = f"http://{free_address()}"
        words = ["etcd", f"--data-dir={self.work}/etcd", f"--listen-client-urls={url}",
                 f"--advertise-client-urls={url}", "--listen-peer-urls=http://127.0.0.1:0",
                 "--logger=zap", f"--log-outputs={self.work}/etcd.log"]  # fmt: skip
        self.etcd = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers():
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=SECONDS_MAX) as answer:
                    return answer.status == 200
            except OSError:
                return False

        wait_for(answers, "etcd")
        return url.removeprefix("http://")

    def issue(self, role, name, folder):
        """A certificate, its key and the authority, as files of their own."""
        issued = folder / "issued.pem"
        subprocess.run([BIN_DIR / "embla", "certs", "issue", f"--dir={self.work}/certs",
                        f"--role={role}", f"--name={name}", f"--out={issued}"],
                       capture_output=True, check=True, timeout=SECONDS_MAX)  # fmt: skip
        pem = issued.read_text()
        blocks = re.findall(r"-----BEGIN .*?-----END [^\n]*\n", pem, re.DOTALL)
        issued.unlink()
        for file, is_key in (("tls.crt", False), ("tls.key", True)):
            kept = [b for b in blocks if ("KEY" in b.split("\n")[0]) == is_key]  # Not in base64.
            (folder / file).write_text("".join(kept))
        shutil.copy(self.work / "certs/ca.pem", folder / "ca.crt")

    def embla(self, *words, certificate=True, caller=None):
        """Runs the command line as the operator of the page, or by the flag `caller`."""
        tls = [caller or f"--tls-cert={self.work}/certs/operator-embla-shard.pem",
               f"--tls-ca={self.work}/certs/ca.pem"]  # fmt: skip
        admin = ",".join(a for name, a in self.addresses.items() if name.endswith(":7071"))
        command = [BIN_DIR / "embla", f"--admin={admin}",
                   *(tls if certificate else []), *words]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=SECONDS_MAX)  # fmt: skip

    def accept_token(self):
        """Makes the secret of tokens, with one of a reader; returns the reader's file."""
        made = subprocess.run([BIN_DIR / "embla", "--output=json", "token", "new", "reader", "r0",
                               f"--dir={self.work}/certs"], capture_output=True, text=True,
                              check=True, timeout=SECONDS_MAX)  # fmt: skip
        token = json.loads(made.stdout)
        secret = self.work / "secrets/embla-tokens"
        secret.mkdir(parents=True)
        (secret / "tokens").write_text(token["line"] + "\n")
        file = self.work / "r0.token"
        file.write_text(token["token"])
        return file

    def node(self, name):
        listed = self.embla("-o", "json", "node", "ls")
        if listed.returncode != 0:
            raise AssertionError(listed.stderr)
        return next(node for node in json.loads(listed.stdout) if node["name"] == name)

    def stop(self):
        codes = {pod.name: pod.stop() for pod in reversed(self.running) if pod.process}
        if self.etcd is not None:
            self.etcd.kill()
            self.etcd.wait()
        return codes


class HelmClusterTest(unittest.TestCase):
    def run_in_cluster(self, variant, walk):
        """Runs walk(cluster) in a cluster with the page's certificates and secrets."""
        with tempfile.TemporaryDirectory() as work:
            page = subprocess.run(["bash", "-euo", "pipefail", "-c", KUBECTL + commands_of_page()],
                                  cwd=work, capture_output=True, text=True, check=False,
                                  env={"PATH": f"{BIN_DIR}:{os.environ['PATH']}"})  # fmt: skip
            self.assertEqual(page.returncode, 0, page.stderr)
            cluster = Cluster(work, variant)
            try:
                walk(cluster)
                self.assertEqual(set(cluster.stop().values()), {0})
            except BaseException:
                cluster.stop()
                for log in sorted(Path(work).glob("*.log")):
                    print(f"--- {log.name}\n{log.read_text()[-2000:]}")
                raise

    def expect_fine(self, pod):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            wait_for(lambda: pod.is_fine(probe), f"{pod.name} {probe}")
        # Without a certificate there are no metrics.
        self.assertEqual(pod.get("/metrics", "https"), 403)
        port = pod.ports["metrics"].rsplit(":", 1)[1]
        health = [BIN_DIR / "embla", "health", f"https://localhost:{port}"]
        self.assertEqual(subprocess.run(health, check=False).returncode, 0)

    def expect_drained_by_its_hook(self, cluster, pod):
        hook = pod.container["lifecycle"]["preStop"]["exec"]["command"]
        drained = pod.run_hook(pod.container, hook)
        self.assertEqual(drained.returncode, 0, drained.stderr + drained.stdout)
        self.assertTrue(cluster.node(pod.name)["drained"])
        wait_for(lambda: not any(d["used_bytes"] for d in cluster.node(pod.name)["devices"]),
                 "no rows")  # fmt: skip
        # The pod that starts again may have rows again.
        pod.run_init()
        self.assertFalse(cluster.node(pod.name)["drained"])

    def create_table(self, cluster):
        created = cluster.embla("table", "create", "--name=t", "--rows=1000", "--dim=8",
                                "--sharding=row_wise")  # fmt: skip
        self.assertEqual(created.returncode, 0, created.stderr)

    def test_the_cluster_of_the_page_serves_and_drains(self):
        def walk(cluster):
            coordinator = cluster.start("embla-coordinator", 0)
            shards = [cluster.start("embla-shard", i) for i in range(2)]
            for pod in [coordinator, *shards]:
                self.expect_fine(pod)
            self.assertNotEqual(cluster.embla("node", "ls", certificate=False).returncode, 0)
            self.create_table(cluster)
            self.assertTrue(all(cluster.node(s.name)["devices"][0]["used_bytes"] for s in shards))
            self.expect_drained_by_its_hook(cluster, shards[1])

        self.run_in_cluster("small", walk)

    @unittest.skipUnless(shutil.which("etcd"), "no etcd-server here")
    def test_three_coordinators_stand_by_for_each_other(self):
        def walk(cluster):
            key = cluster.work / "secrets/embla-cluster-key"
            key.mkdir(parents=True)
            (key / "cluster.key").write_text(f"embla-cluster-key 1 {os.urandom(32).hex()}\n")
            token = cluster.accept_token()
            etcd = cluster.start_etcd()
            cluster.addresses |= {f"etcd-{i}.etcd.etcd:2379": etcd for i in range(3)}
            coordinators = [cluster.start("embla-coordinator", i) for i in range(3)]
            shards = [cluster.start("embla-shard", i) for i in range(2)]
            for pod in [*coordinators, *shards]:
                self.expect_fine(pod)
            self.create_table(cluster)
            listed = cluster.embla("node", "ls", caller=f"--token-file={token}")
            self.assertEqual(listed.returncode, 0, listed.stderr)
            # The first one leads.
            self.assertEqual(coordinators[0].stop(), 0)
            wait_for(lambda: cluster.embla("node", "ls").returncode == 0, "another one leads")
            self.expect_drained_by_its_hook(cluster, shards[1])

        self.run_in_cluster("ha", walk)


if __name__ == "__main__":
    BIN_DIR = Path(sys.argv.pop(1)).resolve()
    if yaml is None:
        print("SKIPPED: no python3-yaml here")
        sys.exit(SKIPPED)
    unittest.main()
