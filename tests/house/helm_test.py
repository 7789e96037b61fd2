"""The chart deploy/helm/embla: Helm makes of it what is committed, and what kustomize makes.

Usage: helm_test.py [--fix] FOLDER, of base.yaml, gpu.yaml and monitoring.yaml as kustomize makes
them; run by kubernetes.sh, whose environment has Helm (helm-python-sdk) and PyYAML. --fix writes
deploy/helm/rendered anew.
"""

import re
import sys
import unittest
from pathlib import Path

import helm_python
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
HELM = ROOT / "deploy/helm"
FOLDER = None
VARIANTS = ["small", "ha", "gpu"]
PLAINTEXT = {"tls": {"enabled": False}}
# Kustomize has neither the labels of Helm nor its way to make a namespace (--create-namespace).
HELM_LABELS = {"app.kubernetes.io/managed-by", "helm.sh/chart"}
# How the chart's defaults differ from plaintext, by object: certificates in secrets, in place of a
# key file.
SHARD_FLAGS = "--tls-cert=/etc/embla/operator/operator-embla-shard.pem " \
              "--tls-ca=/etc/embla/operator/ca.pem"  # fmt: skip
INTENDED = {
    "StatefulSet/embla-coordinator": {
        "initContainers.key",
        "containers.coordinator.args: -cluster-key -insecure +tls-ca +tls-cert",
        "containers.coordinator.volumeMounts: -run +tls",
        "volumes: -key -run +tls",
        *{f"containers.coordinator.{p}.httpGet.scheme: HTTPS"
          for p in ("startupProbe", "livenessProbe", "readinessProbe")},
    },
    "StatefulSet/embla-shard": {
        "initContainers.key",
        f"initContainers.undrain.command: {SHARD_FLAGS}",
        "initContainers.undrain.volumeMounts: +operator",
        "containers.shard.args: -cluster-key -insecure +tls-ca +tls-cert",
        f"containers.shard.lifecycle.preStop.exec.command: {SHARD_FLAGS}",
        "containers.shard.volumeMounts: -run +operator +tls",
        "volumes: -key -run +operator +tls",
        *{f"containers.shard.{p}.httpGet.scheme: HTTPS"
          for p in ("startupProbe", "livenessProbe", "readinessProbe")},
    },
}  # fmt: skip
# Values that are refused, and words of the message.
MISTAKES = [
    ({"shrad": {"replicas": 2}}, "additional properties 'shrad' not allowed"),
    ({"shard": {"replica": 2}}, "at '/shard': additional properties 'replica' not allowed"),
    ({"tls": {"certManager": {"isuer": "x"}}}, "'isuer' not allowed"),
    ({"shard": {"resources": {"limits": {"gpu": "1"}}}}, "'gpu' not allowed"),
    ({"shard": {"tolerations": [{"keys": "gpu"}]}}, "'keys' not allowed"),
    ({"shard": {"replicas": 0}}, "at '/shard/replicas': minimum: got 0, want 1"),
    ({"shard": {"replicas": "3"}}, "at '/shard/replicas': got string, want integer"),
    ({"shard": {"memoryPerDevice": "2G"}}, "at '/shard/memoryPerDevice': '2G' does not match"),
    ({"shard": {"resources": {"limits": {"memory": "6GB"}}}}, "'6GB' does not match"),
    ({"shard": {"storage": {"size": "0Gi"}}}, "at '/shard/storage/size': '0Gi' does not match"),
    ({"shard": {"gpus": -1}}, "at '/shard/gpus': minimum: got -1, want 0"),
    ({"shard": {"spread": "never"}}, "at '/shard/spread': value must be one of"),
    ({"tls": {"enabled": "no"}}, "at '/tls/enabled': got string, want boolean"),
    ({"tls": {"shardSecret": ""}}, "at '/tls/shardSecret': '' does not match"),
    ({"image": {"digest": "sha256:abc"}}, "at '/image/digest': 'sha256:abc' does not match"),
    ({"etcd": {"endpoints": ["etcd"]}}, "at '/etcd/endpoints/0': 'etcd' does not match"),
    ({"shard": {"extraArgs": ["durability"]}}, "at '/shard/extraArgs/0'"),
    ({"shard": {"extraArgs": ["--listen=0.0.0.0:1"]}}, "which the chart sets itself"),
    ({"coordinator": {"extraArgs": ["--insecure"]}}, "set tls.enabled to false instead"),
    ({"coordinator": {"replicas": 3}}, "name its members in etcd.endpoints"),
    ({"etcd": {"tlsSecret": "x"}}, "etcd.endpoints is empty"),
    ({"tls": {"enabled": False, "certManager": {"issuer": "x"}}}, "tls.enabled is false"),
    ({"tls": {"enabled": False, "revokedConfigMap": "x"}}, "no certificates to revoke"),
    ({"tls": {"enabled": False, "tokensSecret": "x"}}, "tokens go over TLS only"),
    ({"serviceMonitor": {"enabled": True}}, "serviceMonitor.tlsSecret"),
    ({"serviceMonitor": {"tlsSecret": "x"}, **PLAINTEXT}, "/metrics is plaintext"),
    ({"shard": {"runtimeClassName": "nvidia"}}, "shard.gpus is 0"),
]


def files_of(values):
    """{path: what Helm makes of the template}"""
    with helm_python.Chart.load(HELM / "embla") as chart:
        return chart.render(values, name="embla", namespace="embla")


def rendered(values):
    """The manifests as one text, without templates that make nothing."""
    files = files_of(values)
    texts = [f"---\n# Source: {path}\n{text.strip()}\n" for path, text in sorted(files.items())
             if path.endswith(".yaml") and text.strip()]  # fmt: skip
    return "".join(texts)


def values_of(variant):
    return helm_python.values_from_yaml((HELM / f"values/{variant}.yaml").read_text())


def of_variant(variant):
    head = f"# `tests/house/kubernetes.sh helm --fix` makes this of values/{variant}.yaml.\n"
    return head + rendered(values_of(variant))


def by_name(text):
    """{"Kind/name": manifest}, without what only Helm or only kustomize has."""
    documents = [d for d in yaml.safe_load_all(text) if d["kind"] != "Namespace"]
    for document in documents:
        labels = document["metadata"]["labels"]
        for label in HELM_LABELS:
            labels.pop(label, None)
    return {f"{d['kind']}/{d['metadata']['name']}": d for d in documents}


def of_kustomize(name):
    found = by_name((FOLDER / f"{name}.yaml").read_text())
    return {k: v for k, v in found.items() if not k.startswith("ConfigMap/")}


def flags_of(words):
    return {word.removeprefix("--").split("=")[0]: word for word in words}


def changes(before, after, path=""):
    """Yields where two parts of manifests differ. Lists of what has a name are told by name, and
    lists of flags by flag."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from changes(before.get(key), after.get(key), f"{path}.{key}")
    elif path.endswith(".args") or is_named(before) or is_named(after):
        part = flags_of if path.endswith(".args") else names_of
        old, new = part(before or []), part(after or [])
        gone, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        if path.endswith("initContainers"):
            yield from (f"{path}.{name}" for name in gone + come)
        elif gone or come:
            yield f"{path}: " + " ".join([f"-{n}" for n in gone] + [f"+{n}" for n in come])
        for name in sorted(old.keys() & new.keys()):
            yield from changes(old[name], new[name], f"{path}.{name}")
    elif path.endswith(".command"):
        words = [w for w in after[-1].split() if w not in before[-1].split()]
        yield f"{path}: {' '.join(words)}"
    else:
        yield f"{path}: {after}"


def is_named(part):
    return isinstance(part, list) and all(isinstance(p, dict) and "name" in p for p in part)


def names_of(parts):
    return {part["name"]: part for part in parts}


def differences(before, after):
    """{"Kind/name": places} of all objects that differ."""
    found = {}
    for name in sorted({*before, *after}):
        places = {c.removeprefix(".spec.template.spec.").lstrip(".")
                  for c in changes(before.get(name), after.get(name))}  # fmt: skip
        if places:
            found[name] = places
    return found


class ChartTest(unittest.TestCase):
    maxDiff = None

    def test_renderings_are_those_that_are_committed(self):
        for variant in VARIANTS:
            with self.subTest(variant):
                committed = (HELM / f"rendered/{variant}.yaml").read_text()
                self.assertEqual(of_variant(variant), committed,
                                 "to accept: tests/house/kubernetes.sh helm --fix")  # fmt: skip
        self.assertEqual({f.stem for f in (HELM / "rendered").iterdir()}, set(VARIANTS))
        self.assertEqual({f.stem for f in (HELM / "values").iterdir()}, set(VARIANTS))

    def test_the_defaults_are_the_base_of_kustomize(self):
        self.assertEqual(differences(of_kustomize("base"), by_name(rendered({}))), {})

    def test_plaintext_differs_only_by_what_tls_needs(self):
        plaintext = by_name(rendered(PLAINTEXT))
        self.assertEqual(differences(plaintext, by_name(rendered({}))), INTENDED)

    def test_gpus_are_as_in_kustomize(self):
        shard = {"gpus": 1, "resources": {"requests": {"cpu": "4", "memory": "16Gi"},
                                          "limits": {"cpu": "8", "memory": "16Gi"}}}  # fmt: skip
        image = {"repository": "embla-cuda"}
        chart = by_name(rendered({"image": image, "shard": shard}))
        self.assertEqual(differences(of_kustomize("gpu"), chart), {})

    def test_the_monitor_is_that_of_kustomize(self):
        monitoring = {"enabled": True, "tlsSecret": "embla-metrics-tls"}
        chart = by_name(rendered({"serviceMonitor": monitoring}))
        monitor = {k: v for k, v in chart.items() if k.startswith("ServiceMonitor/")}
        self.assertEqual(differences(of_kustomize("monitoring"), monitor), {})

    def test_a_difference_would_be_found(self):
        base = of_kustomize("base")
        for shard, place in [
            ({"replicas": 4}, "spec.replicas: 4"),
            ({"cpuDevices": 3}, "containers.shard.args.devices: --devices=cpu:3"),
            ({"extraArgs": ["--heartbeat-ms=9"]}, "containers.shard.args: +heartbeat-ms"),
            ({"drainSeconds": 9}, "terminationGracePeriodSeconds: 69"),
        ]:
            found = differences(base, by_name(rendered({"shard": shard})))
            self.assertEqual(found, {"StatefulSet/embla-shard": {place}})
        without = {name: d for name, d in base.items() if not name.startswith("NetworkPolicy/")}
        open_chart = by_name(rendered({"networkPolicy": {"enabled": False}}))
        self.assertEqual(differences(without, open_chart), {})

    def test_mistakes_in_values_are_refused_with_their_place(self):
        for values, words in MISTAKES:
            with self.subTest(values), self.assertRaises(helm_python.HelmError) as caught:
                rendered(values)
            self.assertIn(words, str(caught.exception))

    def test_every_value_is_known_to_the_schema_and_to_a_template(self):
        with helm_python.Chart.load(HELM / "embla") as chart:
            schema, values = chart.schema, chart.values
        templates = "".join(f.read_text() for f in (HELM / "embla/templates").iterdir())
        self.assertEqual(values.keys(), schema["properties"].keys() - {"global"})
        for key, part in schema["properties"].items():
            for inner in part.get("properties", {}):
                self.assertIn(inner, values[key])
                self.assertRegex(templates, rf"\.{inner}\b")

    def test_helm_finds_nothing_to_complain_of(self):
        for values in [{}, *map(values_of, VARIANTS)]:
            report = helm_python.lint(HELM / "embla", values, strict=True)
            self.assertEqual(report["errors"], [])
            self.assertEqual([m for m in report["messages"] if "icon" not in m["error"]], [])

    def test_notes_name_the_secrets_that_pods_wait_for(self):
        for values in [{}, PLAINTEXT, *map(values_of, VARIANTS)]:
            notes = files_of(values)["embla/templates/NOTES.txt"]
            text = notes.split("Coordinators, for")[0]
            named = set(re.findall(r"^  ([a-z-]+): ", text, re.MULTILINE))
            secrets = set(re.findall(r"secretName: ([a-z-]+)", rendered(values)))
            self.assertEqual(named, secrets)
            self.assertEqual("WARNING" in notes, values == PLAINTEXT)

    def test_an_image_may_be_stated_by_digest(self):
        digest = f"sha256:{'0' * 64}"
        text = rendered({"image": {"digest": digest, "tag": "x"}})
        self.assertEqual(set(re.findall(r'image: "(.*)"', text)), {f"embla@{digest}"})

    def test_nodes_that_do_not_drain_have_no_certificate_of_an_operator(self):
        self.assertIn("operator", rendered(values_of("ha")).replace("embla.dev/operator", ""))
        for variant in VARIANTS:
            values = values_of(variant)
            values["shard"]["drain"] = False
            text = rendered(values).replace("embla.dev/operator", "")
            self.assertNotRegex(text, r"/operator|operator-|name: operator|preStop|EMBLA_ADMIN")

    def test_lists_of_revoked_certificates_reach_every_program(self):
        for variant in VARIANTS:
            values = values_of(variant)
            values.setdefault("tls", {})["revokedConfigMap"] = "lists"
            for name, workload in by_name(rendered(values)).items():
                if not name.startswith("StatefulSet/"):
                    continue
                spec = workload["spec"]["template"]["spec"]
                volumes = names_of(spec["volumes"])
                self.assertEqual(volumes["revoked"]["configMap"], {"name": "lists"})
                for container in spec["containers"] + spec.get("initContainers", []):
                    words = str(container.get("args", "")) + str(container["command"])
                    is_over_tls = "--tls-cert" in words
                    self.assertEqual("--tls-revoked=/etc/embla/revoked" in words, is_over_tls)
                    mounts = [m["mountPath"] for m in container["volumeMounts"]]
                    self.assertEqual("/etc/embla/revoked" in mounts, is_over_tls)

    def test_tokens_reach_the_servers_and_nobody_else(self):
        for secret in ("", "embla-tokens"):
            values = values_of("small") | {"tls": {"tokensSecret": secret}}
            for name, workload in by_name(rendered(values)).items():
                if not name.startswith("StatefulSet/"):
                    continue
                spec = workload["spec"]["template"]["spec"]
                volume = names_of(spec["volumes"]).get("tokens", {})
                self.assertEqual(volume.get("secret", {}).get("secretName", ""), secret)
                server = spec["containers"][0]
                self.assertEqual("--tokens=/etc/embla/tokens/tokens" in server["args"],
                                 secret != "")  # fmt: skip
                for container in spec["containers"] + spec.get("initContainers", []):
                    mounts = [m["mountPath"] for m in container["volumeMounts"]]
                    self.assertEqual("/etc/embla/tokens" in mounts,
                                     secret != "" and container is server)  # fmt: skip


def fix():
    for variant in VARIANTS:
        (HELM / f"rendered/{variant}.yaml").write_text(of_variant(variant))


if __name__ == "__main__":
    FOLDER = Path(sys.argv.pop()).resolve()
    if sys.argv[1:] == ["--fix"]:
        fix()
        sys.exit(0)
    unittest.main()
