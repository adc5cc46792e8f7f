"""TLS end to end, and the address that users and tasks are given."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from support import certificates
from support.ports import free_port
from support.server_fixture import Cluster, SecureCluster, eventually, job

PASSWORD = "of the administrator"
EXTERNAL = "https://pai.example.com:8443/cluster"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed cert.pem for localhost and its key.pem."""
    return certificates.certificate(tmp_path_factory.mktemp("certificate"), "localhost")


class SecureTeam(SecureCluster):
    def log_in(self) -> SecureTeam:
        login = {"username": "admin", "password": PASSWORD}
        self.user, self.token = "admin", self.ask("POST", "/api/v2/authn/basic/login", login).json()["token"]
        return self


def write_cluster_file(home: Path, text: str) -> Path:
    home.mkdir()
    (home / "cluster.yaml").write_text(text)
    return home


@pytest.fixture
def secure(tmp_path: Path, certificate: Path) -> SecureTeam:
    text = f"""
listen:
  host: 0.0.0.0
  tls: {{certificate: {certificate}/cert.pem, key: {certificate}/key.pem}}
  external-url: {EXTERNAL}/
engine: {{type: process, cpus: 4, memory-mb: 4096, gpus: 0}}
"""
    home = write_cluster_file(tmp_path / "home", text)
    return SecureTeam(home, (), {"PAICLUSTER_ADMIN_PASSWORD": PASSWORD}, ca_file=certificate / "cert.pem")


def test_cluster_from_cluster_yaml_serves_with_tls(secure: SecureTeam, tmp_path: Path) -> None:
    try:
        secure.start()
        secure.log_in()
        assert json.loads((secure.home / "server.json").read_text())["url"].startswith("https://")
        assert secure.get("/healthz").status == 200
        assert "max-age" in secure.get("/api/v2/info").headers.get("strict-transport-security", "")

        # Plain HTTP is not accepted there.
        with pytest.raises((OSError, http.client.HTTPException)):
            plain = http.client.HTTPConnection("127.0.0.1", secure.address[1], timeout=90)
            plain.request("GET", "/healthz")
            plain.getresponse()
        with pytest.raises(ssl.SSLError), socket.create_connection(secure.address) as raw:
            ssl.create_default_context().wrap_socket(raw, server_hostname="localhost")

        # Tasks and users are given the address in the file.
        secure.run(job("address", "echo $PAI_REST_SERVER_URI"))
        assert secure.log_of("address").decode() == EXTERNAL + "\n"
        logs = secure.path("address", "/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs")
        [first, *_] = secure.get(logs).json()["locations"]
        assert unquote(first["uri"]).startswith("/log-manager/pai.example.com:8443/")
        assert secure.get(first["uri"], token=None).status == 200
        old = secure.get("/api/v1/user/admin/jobs/address").json()
        assert json.dumps(old).count(f"{EXTERNAL}/") >= 1

        # The administrator's commands connect.
        users = [sys.executable, "-m", "paicluster", "user", "list", "-o", "json", "--home", str(secure.home)]
        result = subprocess.run(users, capture_output=True, text=True, check=True)
        assert [user["username"] for user in json.loads(result.stdout)] == ["admin"]

        # So does a client that trusts this certificate.
        pai = [str(Path(sys.executable).with_name("pai"))]
        variables = {**os.environ, "HOME": str(tmp_path), "PAI_HOME": str(tmp_path)}
        where = f"https://localhost:{secure.address[1]}"
        join = [*pai, "add-cluster", "-a", "team", "--pai-uri", where, "--user", "admin", "--token"]
        refused = subprocess.run([*join, secure.token], env=variables, capture_output=True, text=True)
        assert refused.returncode != 0 and "ertificate" in refused.stderr
        trusted = [*join, secure.token, "--ca", str(secure.ca_file)]
        subprocess.run(trusted, env=variables, capture_output=True, text=True, check=True)
        sub = [*pai, "sub", "-a", "team", "--follow", "--no-sources", "--", "echo", "hello from afar"]
        ran = subprocess.run(sub, env=variables, capture_output=True, text=True, cwd=tmp_path)
        assert ran.returncode == 0 and "hello from afar" in ran.stdout, (ran.stdout, ran.stderr)
    finally:
        secure.close()


def test_tasks_trust_a_private_ca_shipped_with_the_runtime(tmp_path: Path) -> None:
    """The system does not know its CA either: the CA certificate is shipped with the runtime."""
    own = certificates.certificate(tmp_path, "localhost", by_an_authority=True)
    # Many keep both in one file. The key must not be shipped.
    (own / "both.pem").write_bytes((own / "key.pem").read_bytes() + (own / "cert.pem").read_bytes())
    port = free_port()
    text = f"""
listen:
  port: {port}
  tls: {{certificate: {own}/both.pem, key: {own}/key.pem}}
  external-url: https://localhost:{port}
engine: {{type: process, cpus: 4, memory-mb: 4096, gpus: 0}}
"""
    home = write_cluster_file(tmp_path / "home", text)
    password = {"PAICLUSTER_ADMIN_PASSWORD": PASSWORD}
    cluster = SecureTeam(home, ("--port", str(port)), password, ca_file=own / "cert.pem")
    try:
        cluster.start()
        cluster.log_in()
        asks = "from openpaisdk import OpenPAIClient; print([job.name for job in OpenPAIClient().jobs()])"
        what = job(
            "here",
            "echo kept > $PAI_OUTPUT_DIR/result",
            "hdfs dfs -ls /user",
            f"{sys.executable} -c '{asks}'",
        )
        assert cluster.run(what)["state"] == "SUCCEEDED", cluster.log_of("here")
        output = cluster.log_of("here").decode()
        assert "/user/admin" in output and "['here']" in output
        assert [path.read_text() for path in home.glob("storage/**/result")] == ["kept\n"]
        [shipped] = home.glob("runtime/*/authority.pem")
        assert shipped.read_text().strip() == (own / "cert.pem").read_text().strip()
        assert "certificate is not valid" not in cluster.log.read_text()
    finally:
        cluster.close()


def test_certificate_for_another_name_is_warned_about_at_startup(tmp_path: Path, certificate: Path) -> None:
    text = f"""
listen:
  tls: {{certificate: {certificate}/cert.pem, key: {certificate}/key.pem}}
engine: {{type: process, cpus: 4, memory-mb: 4096, gpus: 0}}
"""
    home = write_cluster_file(tmp_path / "home", text)
    password = {"PAICLUSTER_ADMIN_PASSWORD": PASSWORD}
    cluster = SecureTeam(home, (), password, ca_file=certificate / "cert.pem")
    try:
        cluster.start()
        cluster.log_in()
        # It is issued for localhost, and tasks are given 127.0.0.1.
        eventually(lambda: "certificate is not valid" in cluster.log.read_text(), "a warning")
        assert "external-url" in cluster.log.read_text()
        assert cluster.run(job("left", "echo kept > $PAI_OUTPUT_DIR/result"))["state"] == "FAILED"
        assert "is not trusted" in cluster.log_of("left").decode()
    finally:
        cluster.close()


def test_options_override_the_file(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    text = f"""
home: {tmp_path}/elsewhere
listen: {{port: 1, external-url: "http://other.example.com"}}
engine: {{type: process, cpus: 3, memory-mb: 4096, gpus: 2}}
virtual-clusters: {{lab: {{gpus: 1, cpus: 1, memory-mb: 1024}}}}
"""
    file = tmp_path / "any-name.yaml"
    file.write_text(text)
    cluster = new_cluster(options=("--embedded", "--config", str(file), "--cpus", "5", "--external-url"))
    cluster.start("http://pai.example.com/")
    found = cluster.get("/api/v2/virtual-clusters").json()
    total = {name: share["resourcesTotal"] for name, share in found.items()}
    assert total["lab"]["gpu"] == 1
    assert total["default"]["cpu"] + total["lab"]["cpu"] == 5
    assert total["default"]["gpu"] == 1
    cluster.run(job("address", "echo $PAI_REST_SERVER_URI"))
    assert cluster.log_of("address") == b"http://pai.example.com\n"
    assert not (tmp_path / "elsewhere").exists(), "--home wins too"


def test_config_file_alone_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("home: state\nlisten: {port: 0}\ndatabase: elsewhere.db\n")

    class FromFile(Cluster):
        def arguments(self, *more: str) -> list[str]:
            return ["serve", "--config", str(file), "--embedded"]

    cluster = FromFile(tmp_path / "state")
    try:
        cluster.start()
        assert cluster.run(job("here", "true"))["state"] == "SUCCEEDED"
        assert (tmp_path / "elsewhere.db").stat().st_mode & 0o077 == 0
        assert not (tmp_path / "state" / "cluster.db").exists()
    finally:
        cluster.close()
