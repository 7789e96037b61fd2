"""Manifests as kustomize and Helm make them say what the programs can do, and are locked down.

Usage: kubernetes_test.py BIN_DIR FOLDER, of base.yaml, gpu.yaml and monitoring.yaml by kustomize,
and of helm-*.yaml; run by kubernetes.sh, whose environment has PyYAML.
"""

import re
import shlex
import subprocess
import sys
import unittest
from functools import cache
from pathlib import Path

import yaml

BIN_DIR = None
FOLDER = None
KUSTOMIZE = ["base", "gpu"]
HELM = ["helm-small", "helm-ha", "helm-gpu"]
VARIANTS = KUSTOMIZE + HELM
METRICS_PATHS = {"/healthz", "/readyz"}


@cache
def resources(variant):
    """{(kind, name): manifest}"""
    documents = yaml.safe_load_all((FOLDER / f"{variant}.yaml").read_text())
    return {(d["kind"], d["metadata"]["name"]): d for d in documents}


def sets(variant):
    return [r for (kind, _), r in resources(variant).items() if kind == "StatefulSet"]


def pod(workload):
    return workload["spec"]["template"]["spec"]


@cache
def help_of(*words):
    return subprocess.run([BIN_DIR / words[0], *words[1:], "--help"], capture_output=True,
                          text=True, check=True).stdout  # fmt: skip


class ManifestsTest(unittest.TestCase):
    def test_every_flag_is_a_flag_of_its_program(self):
        for workload in [w for v in VARIANTS for w in sets(v)]:
            container = pod(workload)["containers"][0]
            for argument in container["args"]:
                flag = argument.split("=")[0]
                self.assertRegex(help_of(container["command"][0]),
                                 rf"(?m)(?:^|[\s,]){flag}(?![\w-])", argument)  # fmt: skip

    def test_hooks_are_words_of_the_command_line(self):
        scripts = []
        for workload in [w for v in ["base", *HELM] for w in sets(v)]:
            spec = pod(workload)
            scripts += [c["command"][2] for c in spec.get("initContainers", [])
                        if c["command"][0] == "sh"]
            hook = spec["containers"][0].get("lifecycle", {}).get("preStop")
            scripts += [hook["exec"]["command"][2]] if hook else []
        self.assertEqual(len(scripts), 2 * (1 + len(HELM)))
        for script in scripts:
            words = shlex.split(script.split("||")[0])
            for_all = [w for w in words if w.startswith("--tls-")]
            verb = [w for w in words if w not in for_all]
            for flag in for_all:
                self.assertIn(flag.split("=")[0], help_of("embla"))
            for flag in [w for w in verb if w.startswith("--")]:
                self.assertIn(flag, help_of(*verb[:3]))

    def test_a_node_is_drained_before_it_stops_and_has_the_time(self):
        spec = pod(resources("base")["StatefulSet", "embla-shard"])
        hook = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        self.assertTrue(hook[2].endswith(' node drain "$POD_NAME" --wait'))
        self.assertGreaterEqual(spec["terminationGracePeriodSeconds"], 600)
        # A node that was drained at its last end gets rows again.
        self.assertIn("node undrain", spec["initContainers"][-1]["command"][2])

    def test_probes_ask_what_is_served(self):
        for workload in [w for v in VARIANTS for w in sets(v)]:
            container = pod(workload)["containers"][0]
            ports = {p["name"]: p["containerPort"] for p in container["ports"]}
            listen = next(a for a in container["args"] if a.startswith("--metrics-listen="))
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                get = container[probe]["httpGet"]
                self.assertIn(get["path"], METRICS_PATHS)
                self.assertTrue(listen.endswith(f":{ports[get['port']]}"))
            # Life does not depend on the coordinator or on peers.
            self.assertEqual(container["livenessProbe"]["httpGet"]["path"], "/healthz")

    def test_addresses_are_those_of_services(self):
        for variant in VARIANTS:
            args = " ".join(pod(resources(variant)["StatefulSet", "embla-shard"])
                            ["containers"][0]["args"])  # fmt: skip
            for name, port in re.findall(r"(embla-[a-z]+):(\d+)", args):
                service = resources(variant)["Service", name]
                self.assertIn(int(port), [p["port"] for p in service["spec"]["ports"]])

    def test_rows_leave_a_gigabyte_of_a_nodes_memory(self):
        for variant in VARIANTS:
            container = pod(resources(variant)["StatefulSet", "embla-shard"])["containers"][0]
            args = " ".join(container["args"])
            if found := re.search(r"--devices=cpu:(\d+) --memory-per-device=(\d+)GiB", args):
                rows = int(found[1]) * int(found[2])
                limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi"))
                self.assertGreaterEqual(limit - rows, 1, variant)
            else:
                self.assertIn("gpu", args)

    def test_nodes_keep_their_rows_and_their_names(self):
        spec = resources("base")["StatefulSet", "embla-shard"]["spec"]
        self.assertEqual(spec["podManagementPolicy"], "Parallel")
        self.assertEqual(set(spec["persistentVolumeClaimRetentionPolicy"].values()), {"Retain"})
        service = resources("base")["Service", spec["serviceName"]]["spec"]
        self.assertEqual(service["clusterIP"], "None")
        self.assertTrue(service["publishNotReadyAddresses"])
        budget = resources("base")["PodDisruptionBudget", "embla-shard"]["spec"]
        self.assertEqual(budget["maxUnavailable"], 1)

    def test_pods_have_no_privileges_and_no_token(self):
        for workload in [w for v in VARIANTS for w in sets(v)]:
            spec = pod(workload)
            self.assertIs(spec["automountServiceAccountToken"], False)
            self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
            self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertEqual([key for key in spec if key.startswith("host")], [])
            kinds = {kind for v in spec["volumes"] for kind in v if kind != "name"}
            self.assertLessEqual(kinds, {"secret", "emptyDir", "csi", "configMap"})
            for container in spec["containers"] + spec.get("initContainers", []):
                self.assertEqual(container["securityContext"], {
                    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]}})  # fmt: skip
                self.assertEqual(container["resources"].keys(), {"requests", "limits"})

    def test_every_connection_is_over_tls(self):
        for workload in [w for v in VARIANTS for w in sets(v)]:
            container = pod(workload)["containers"][0]
            flags = {a.split("=")[0] for a in container["args"]}
            self.assertNotIn("--insecure", flags)
            self.assertLessEqual({"--tls-cert", "--tls-ca"}, flags)
            self.assertEqual("--etcd-cert" in flags, any("etcd://" in a for a in container["args"]))
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                self.assertEqual(container[probe]["httpGet"]["scheme"], "HTTPS")
            # Every file that a flag names lies in a volume.
            mounts = tuple(m["mountPath"] for m in container["volumeMounts"])
            for argument in container["args"]:
                value = argument.partition("=")[2]
                self.assertTrue(not value.startswith("/") or value.startswith(mounts), argument)
        for variant in [*VARIANTS, "monitoring"]:
            self.assertEqual([n for kind, n in resources(variant) if kind == "Secret"], [])
            for (kind, _), monitor in resources(variant).items():
                if kind == "ServiceMonitor":
                    self.assertEqual({e["scheme"] for e in monitor["spec"]["endpoints"]}, {"https"})

    def test_each_of_several_coordinators_has_an_address_and_all_are_named(self):
        found = resources("helm-ha")
        coordinators = found["StatefulSet", "embla-coordinator"]["spec"]
        service = coordinators["serviceName"]
        self.assertEqual(found["Service", service]["spec"]["clusterIP"], "None")
        names = [f"embla-coordinator-{i}.{service}" for i in range(coordinators["replicas"])]
        self.assertGreater(len(names), 1)
        container = pod(found["StatefulSet", "embla-shard"])["containers"][0]
        self.assertIn("--coordinator=" + ",".join(f"{n}:7070" for n in names), container["args"])
        admin = next(e["value"] for e in container["env"] if e["name"] == "EMBLA_ADMIN")
        self.assertEqual(admin, ",".join(f"{n}:7071" for n in names))
        budget = found["PodDisruptionBudget", "embla-coordinator"]["spec"]
        self.assertEqual(budget["maxUnavailable"], 1)

    def test_the_network_is_closed_but_for_those_who_are_named(self):
        for variant, workload in [(v, w) for v in VARIANTS for w in sets(v)]:
            labels = workload["spec"]["template"]["metadata"]["labels"]
            policy = resources(variant)["NetworkPolicy", workload["metadata"]["name"]]["spec"]
            self.assertEqual(policy["podSelector"]["matchLabels"].items() - labels.items(), set())
            ports = {p["containerPort"] for p in pod(workload)["containers"][0]["ports"]}
            open_ports = {p["port"] for rule in policy["ingress"] for p in rule["ports"]}
            self.assertEqual(open_ports, ports)
            self.assertTrue(all(rule["from"] for rule in policy["ingress"]))
            # Names are asked wherever the cluster's name service is, and etcd may be anywhere.
            anywhere = {53, 2379} if variant == "helm-ha" else {53}
            closed = [rule for rule in policy["egress"]
                      if not {p["port"] for p in rule["ports"]} <= anywhere]  # fmt: skip
            self.assertEqual(set(policy["policyTypes"]), {"Ingress", "Egress"})
            self.assertTrue(all(rule["to"] for rule in closed))

    def test_the_gpu_variant_has_a_gpu_for_each_node_and_the_image(self):
        for variant in ("gpu", "helm-gpu"):
            spec = pod(resources(variant)["StatefulSet", "embla-shard"])
            container = spec["containers"][0]
            self.assertIn("--devices=gpu:all", container["args"])
            self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], "1")
            self.assertEqual(container["resources"]["requests"]["nvidia.com/gpu"], "1")
            images = {c["image"] for c in spec["containers"] + spec["initContainers"]}
            self.assertEqual(len(images), 1)
            self.assertTrue(images.pop().split("/")[-1].startswith("embla-cuda:"))
        # Only nodes are kept for machines with GPUs.
        self.assertIn("nodeSelector", spec)
        self.assertIn("tolerations", spec)
        coordinator = pod(resources("helm-gpu")["StatefulSet", "embla-coordinator"])
        self.assertNotIn("nodeSelector", coordinator)

    def test_the_monitor_finds_the_services(self):
        monitor = resources("monitoring")["ServiceMonitor", "embla"]["spec"]
        for name in ("embla-coordinator", "embla-shard"):
            service = resources("base")["Service", name]
            labels = service["metadata"]["labels"]
            self.assertEqual(monitor["selector"]["matchLabels"].items() - labels.items(), set())
            self.assertEqual(labels[monitor["jobLabel"]], name)
            self.assertIn(monitor["endpoints"][0]["port"],
                          [p["name"] for p in service["spec"]["ports"]])  # fmt: skip


if __name__ == "__main__":
    FOLDER = Path(sys.argv.pop()).resolve()
    BIN_DIR = Path(sys.argv.pop()).resolve()
    unittest.main()
