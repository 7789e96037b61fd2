"""Connections over TLS: who may do what, and what the others are told."""

import json
import subprocess

import numpy as np
import pytest

import embla
from embla.local_cluster import find_program


def run_embla(*arguments):
    command = [find_program("embla"), *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout


class TlsCluster:
    """A coordinator and a shard server, with certificates of an authority of their own."""

    def __init__(self, folder, await_for):
        self.folder, self.await_for = folder, await_for
        self.processes = []
        run_embla("certs", "init", "--dir", folder / "certs", "--cluster", "test")
        made = run_embla("token", "new", "reader", "job", "--cluster", "test", "-o", "json")
        (folder / "token").write_text(json.loads(made)["token"])
        (folder / "tokens").write_text(json.loads(made)["line"])
        self.coordinator = self.start("coordinator", "--state-dir", folder / "state")
        self.start("shard", "--coordinator", self.coordinator["listen"], "--devices", "cpu:1",
                   "--name", "node1", role="node", name="node1")  # fmt: skip

    def certificate(self, role, name):
        path = self.folder / "certs" / f"{role}-{name}.pem"
        if not path.exists():
            run_embla("certs", "issue", "--dir", self.folder / "certs", "--role", role,
                      "--name", name)  # fmt: skip
        return path

    def tls(self, role, name="t"):
        return embla.Tls(
            certificate=str(self.certificate(role, name)),
            authorities=str(self.folder / "certs" / "ca.pem"),
        )

    def start(self, program, *flags, role="coordinator", name="c"):
        ports, log = (self.folder / f"{program}.{end}" for end in ("json", "log"))
        command = [find_program(f"embla-{program}"), "--listen", "127.0.0.1:0", *flags]
        command += ["--port-file", ports, "--tls-ca", self.folder / "certs" / "ca.pem"]
        command += ["--tls-cert", self.certificate(role, name), "--tokens", self.folder / "tokens"]
        if program == "coordinator":
            command += ["--admin-listen", "127.0.0.1:0"]
        with log.open("w") as output:
            process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output)
        self.processes.append(process)

        def serves():
            assert process.poll() is None, log.read_text()
            return ports.exists()

        self.await_for(serves, 30, f"{program} serves")
        return json.loads(ports.read_text())

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def tls_cluster(tmp_path_factory, await_for):
    cluster = TlsCluster(tmp_path_factory.mktemp("tls"), await_for)
    yield cluster
    cluster.stop()


def test_a_trainer_trains_and_no_role_does_more_than_it_may(tls_cluster):
    address, admin_address = (tls_cluster.coordinator[name] for name in ("listen", "admin"))
    spec = embla.TableSpec("t", rows=10, dim=2, optimizer=embla.SGD(lr=1.0))
    with embla.Admin(admin_address, tls=tls_cluster.tls("reader")) as admin:
        with pytest.raises(embla.PermissionDeniedError, match=r"reader/t may not call \S+Create"):
            admin.create_table(spec)
    with embla.Admin(admin_address, tls=tls_cluster.tls("operator")) as admin:
        admin.create_table(spec)
        with pytest.raises(embla.PermissionDeniedError, match=r"operator/t may not call \S+Drop"):
            admin.drop_table("t")

    gradient = embla.Gradient("t", [1], np.full((1, 2), -1.0, np.float32))
    lookup = embla.Lookup("t", [1])
    with embla.connect(address, tls=tls_cluster.tls("trainer")) as trainer:
        before = trainer.lookup([lookup])[0].copy()
        trainer.update([gradient])
        np.testing.assert_array_equal(trainer.lookup([lookup])[0], before + 1)
    with embla.connect(address, tls=tls_cluster.tls("reader")) as reader:
        np.testing.assert_array_equal(reader.lookup([lookup])[0], before + 1)
        with pytest.raises(embla.PermissionDeniedError, match="reader/t may not call") as refused:
            reader.update([gradient])
        assert refused.value.code == "PERMISSION_DENIED"


def test_certificates_come_from_the_environment(tls_cluster, monkeypatch):
    monkeypatch.setenv("EMBLA_TLS_CERT", str(tls_cluster.certificate("reader", "t")))
    monkeypatch.setenv("EMBLA_TLS_CA", str(tls_cluster.folder / "certs" / "ca.pem"))
    embla.connect(tls_cluster.coordinator["listen"]).close()


def test_a_token_takes_the_certificates_place(tls_cluster, monkeypatch):
    token, authorities = (str(tls_cluster.folder / name) for name in ("token", "certs/ca.pem"))
    tls = embla.Tls(token=token, authorities=authorities)
    with embla.Admin(tls_cluster.coordinator["admin"], tls=tls) as admin:
        admin.status()
        with pytest.raises(embla.PermissionDeniedError, match="reader/job may not call"):
            admin.drop_table("t")
    monkeypatch.setenv("EMBLA_TOKEN_FILE", token)
    monkeypatch.setenv("EMBLA_TLS_CA", authorities)
    embla.connect(tls_cluster.coordinator["listen"]).close()
    with pytest.raises(embla.InvalidArgumentError, match="tokens go over TLS only"):
        embla.connect(tls_cluster.coordinator["listen"], tls=embla.Tls(token=token))


def test_a_plain_or_foreign_client_is_told_what_to_look_at(tls_cluster, tmp_path):
    address = tls_cluster.coordinator["listen"]
    with pytest.raises(embla.UnavailableError, match=address):
        embla.connect(address, timeout=1, waits_for_coordinator=False)
    run_embla("certs", "init", "--dir", tmp_path, "--cluster", "test")
    run_embla("certs", "issue", "--dir", tmp_path, "--role", "trainer", "--name", "t")
    foreign = embla.Tls(
        certificate=str(tmp_path / "trainer-t.pem"), authorities=str(tmp_path / "ca.pem")
    )
    with pytest.raises(embla.UnavailableError, match="signed by no authority"):
        embla.connect(address, timeout=1, waits_for_coordinator=False, tls=foreign)
    missing = embla.Tls(certificate="no-such-file", authorities=str(tmp_path / "ca.pem"))
    with pytest.raises(embla.InvalidArgumentError, match="--tls-cert: .*no-such-file"):
        embla.connect(address, tls=missing)
