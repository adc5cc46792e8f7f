"""Certificates of users as a login: issued and revoked by `paicluster user certificate`."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.certificates import CertificateAuthority, certificate
from support.cli_user import CliUser, CommandResult
from support.process_template import run_paicluster
from support.server_fixture import job
from support.team_cluster import MACHINE, PASSWORD, USERS, TeamCluster, add_users

pytestmark = pytest.mark.slow
Files = tuple[Path, Path]


class TlsCluster(TeamCluster):
    """A cluster that listens with TLS."""

    ca_file: Path

    def connect(self, timeout: float = 60) -> http.client.HTTPConnection:
        return self.connect_with(None, timeout)

    def connect_with(self, files: Files | None, timeout: float = 60) -> http.client.HTTPSConnection:
        trust = ssl.create_default_context(cafile=str(self.ca_file))
        if files is not None:
            trust.load_cert_chain(*files)
        return http.client.HTTPSConnection(*self.address, timeout=timeout, context=trust)

    def call(
        self, files: Files | None, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        connection = self.connect_with(files)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    folder = tmp_path_factory.mktemp("tls")
    made = certificate(folder, "127.0.0.1")
    add_users(folder / "home")
    options = ("--tls-cert", str(made / "cert.pem"), "--tls-key", str(made / "key.pem"), *MACHINE)
    cluster = TlsCluster(folder / "home", options, description=None)
    cluster.ca_file = made / "cert.pem"
    try:
        cluster.start()
        cluster.tokens = {user: cluster.log_in(user) for user in USERS}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        yield cluster
    finally:
        cluster.close()


def paicluster(cluster: TlsCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return run_paicluster("user", "certificate", *words, "--home", str(cluster.home))


def issue(cluster: TlsCluster, user: str, folder: Path) -> Files:
    folder.mkdir()
    done = paicluster(cluster, user, "--to", str(folder))
    assert done.returncode == 0, done.stderr
    files = folder / f"{user}.pem", folder / f"{user}-key.pem"
    assert done.stdout.startswith(f"Wrote {files[0]} and {files[1]}, valid until 20")
    return files


def test_certificate_is_a_login(tls: TlsCluster, tmp_path: Path) -> None:
    files = issue(tls, "bob", tmp_path / "bob")
    assert oct(files[1].stat().st_mode & 0o777) == "0o600"
    assert tls.call(files, "GET", "/api/v1/token2user/") == (200, {"user": "bob"})
    status, reply = tls.call(files, "GET", "/api/v1/jobs")
    assert (status, reply["code"], reply["msg"]) == (200, 200, [])
    # A path of another user is refused.
    _, reply = tls.call(files, "GET", "/api/v1/pfs/files?method=ls&r=true&arg=/pfs/dc/home/alice")
    assert "unauthorized" in reply["err"]


def test_clients_need_no_certificate(tls: TlsCluster) -> None:
    assert tls.call(None, "GET", "/api/v1/token2user")[0] == 401
    body = {"username": "alice", "password": PASSWORD}
    status, reply = tls.call(None, "POST", "/api-token-auth/", body)
    assert (status, len(reply["token"])) == (200, 40)


def test_token_of_another_user_is_refused_with_a_certificate(tls: TlsCluster, tmp_path: Path) -> None:
    files = issue(tls, "bob", tmp_path / "bob")
    token = {"Authorization": f"Token {tls.tokens['alice']}"}
    status, reply = tls.call(files, "GET", "/api/v1/token2user", **token)
    assert status == 401
    assert "The certificate is that of user bob" in reply["detail"]
    own = {"Authorization": f"Token {tls.tokens['bob']}"}
    assert tls.call(files, "GET", "/api/v1/token2user", **own) == (200, {"user": "bob"})


def test_login_of_another_user_is_refused_with_a_certificate(tls: TlsCluster, tmp_path: Path) -> None:
    files = issue(tls, "bob", tmp_path / "bob")
    status, reply = tls.call(files, "POST", "/api-token-auth/", {"username": "alice", "password": PASSWORD})
    (sentence,) = reply["non_field_errors"]
    assert (status, sentence) == (
        400,
        "The certificate is that of user bob, the password that of alice. Send only one of them.",
    )
    own = {"username": "bob", "password": PASSWORD}
    assert tls.call(files, "POST", "/api-token-auth/", own)[0] == 200


def test_portal_and_health_are_there_with_a_certificate(tls: TlsCluster, tmp_path: Path) -> None:
    connection = tls.connect_with(issue(tls, "bob", tmp_path / "bob"))
    # What is at "/" depends on whether the portal is built.
    for path, text in (
        ("/", b""),
        ("/openapi.json", b"{"),
        ("/healthz", b"Pylon ready."),
        ("/healthz/", b"OK"),
    ):
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        assert (response.status, body.startswith(text)) == (200, True), (path, body)
    connection.close()


def test_page_of_another_site_cannot_use_the_certificate_of_a_browser(
    tls: TlsCluster, tmp_path: Path
) -> None:
    files = issue(tls, "bob", tmp_path / "bob")
    host, port = tls.address
    for path in ("/api/v1/token2user", "/api/v2/users/bob"):
        refused = tls.call(files, "GET", path, Origin="https://evil.example.org")
        assert refused[0] == 401
        assert "A page of another site cannot use your certificate." in json.dumps(refused[1])
        assert tls.call(files, "GET", path, Origin=f"https://{host}:{port}")[0] == 200
    token = {"Authorization": f"Bearer {tls.tokens['bob']}", "Origin": "https://evil.example.org"}
    assert tls.call(files, "GET", "/api/v2/users/bob", **token)[0] == 200


def test_session_of_another_user_is_refused_with_a_certificate(tls: TlsCluster, tmp_path: Path) -> None:
    """The portal in a browser that has a certificate."""
    files = issue(tls, "bob", tmp_path / "bob")
    host, port = tls.address
    origin = {"Origin": f"https://{host}:{port}", "Content-Type": "application/json"}
    for user, status in (("bob", 200), ("alice", 401)):
        connection = tls.connect_with(files)
        body = json.dumps({"username": user, "password": PASSWORD})
        connection.request("POST", "/api/v2/authn/session", body, origin)
        response = connection.getresponse()
        session = json.loads(response.read())
        cookie = (response.headers["Set-Cookie"] or "").partition(";")[0]
        connection.close()
        proof = {"Cookie": cookie, "X-Pai-Session-Proof": session["proof"], **origin}
        assert tls.call(files, "GET", "/api/v2/users/bob", **proof)[0] == status


def test_revoked_certificate_is_refused(tls: TlsCluster, tmp_path: Path) -> None:
    files = issue(tls, "alice", tmp_path / "alice")
    assert tls.call(files, "GET", "/api/v1/token2user")[0] == 200
    done = paicluster(tls, "alice", "--revoke")
    assert done.stdout == "Revoked 1 certificate of user alice.\n"
    status, reply = tls.call(files, "GET", "/api/v1/token2user")
    assert status == 401
    assert reply["detail"].startswith("The certificate of alice was revoked, or has expired.")


def test_revoking_ends_what_a_certificate_has_opened(tls: TlsCluster, tmp_path: Path) -> None:
    files = issue(tls, "alice", tmp_path / "alice")
    tls.accept(job("followed", "sleep 600"))
    tls.wait_state("followed", "RUNNING")
    connection = tls.connect_with(files)
    connection.request("GET", tls.path("followed", "/follow"))
    response = connection.getresponse()
    assert (response.status, json.loads(response.readline())["kind"]) == (200, "state")
    assert paicluster(tls, "alice", "--revoke").returncode == 0
    # Its end, also where more was written meanwhile.
    while response.readline():
        pass
    connection.close()
    tls.stop("followed")


def test_renegotiation_is_refused(tls: TlsCluster) -> None:
    """One of TLS 1.2 could exchange the certificate of a connection."""
    host, port = tls.address
    command = ["openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_2", "-CAfile", str(tls.ca_file)]
    done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=60, check=False)
    assert done.returncode != 0
    assert b"no renegotiation" in done.stderr


@pytest.mark.parametrize("name", ["alice", "admin"])
def test_certificate_of_another_authority_is_refused(tls: TlsCluster, tmp_path: Path, name: str) -> None:
    files = CertificateAuthority(tmp_path, "paicluster users").issue(tmp_path / "other", name)
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        tls.call(files, "GET", "/api/v1/token2user")


def test_certificate_survives_a_restart(tls: TlsCluster, tmp_path: Path) -> None:
    files = issue(tls, "bob", tmp_path / "bob")
    assert tls.terminate() == 0
    tls.start()
    assert tls.call(files, "GET", "/api/v1/token2user") == (200, {"user": "bob"})


def test_errors_of_the_command(tls: TlsCluster, tmp_path: Path) -> None:
    unknown = paicluster(tls, "nobody", "--to", str(tmp_path))
    assert unknown.returncode != 0
    assert "User nobody not found." in unknown.stderr
    assert os.listdir(tmp_path) == []
    (tmp_path / "bob.pem").write_text("mine")
    exists = paicluster(tls, "bob", "--to", str(tmp_path))
    assert exists.returncode != 0
    assert "exists; nothing was changed" in exists.stderr
    assert (tmp_path / "bob.pem").read_text() == "mine"
    missing = paicluster(tls, "bob", "--to", str(tmp_path / "no"))
    assert "There is no folder" in missing.stderr


# --- the command, with a certificate that does not give access ---


def paddlecloud(
    tls: TlsCluster, folder: Path, files: Files, *words: str, username: str = ""
) -> CommandResult:
    """Run `paddlecloud` with a certificate, and with a name of its user in the configuration."""
    user = CliUser(folder / f"user-{len(os.listdir(folder))}")
    (user.home / ".paddle").mkdir()
    host, port = tls.address
    (user.home / ".paddle" / "config").write_text(
        f"dc1:\n  usercert: {files[0]}\n  userkey: {files[1]}\n  cacert: {tls.ca_file}\n"
        f"  endpoint: https://{host}:{port}\n  username: {username}\n"
    )
    return user.run(["paddlecloud", *words])


def test_files_of_one_user_with_the_certificate_of_another(tls: TlsCluster, tmp_path: Path) -> None:
    alice, bob = (issue(tls, user, tmp_path / user) for user in ("alice", "bob"))
    (tmp_path / "data").write_text("of alice")
    copied = paddlecloud(
        tls, tmp_path, alice, "pfs", "cp", str(tmp_path / "data"), "/pfs/dc1/home/alice/data"
    )
    assert copied.status == 0, copied
    (tmp_path / "data").write_text("of bob")
    path = "/pfs/dc1/home/alice/data"
    for words in (
        ("ls", path),
        ("rm", path),
        ("cp", str(tmp_path / "data"), path),
        ("cp", path, str(tmp_path)),
    ):
        done = paddlecloud(tls, tmp_path, bob, "pfs", *words)
        assert (done.status, done.out) == (1, ""), (words, done)
        assert done.err.endswith(f"unauthorized: {path} is not in the home of bob.\n"), (words, done)
        assert len(done.err.splitlines()) == 1
    assert (tmp_path / "data").read_text() == "of bob"
    fetched = paddlecloud(tls, tmp_path, alice, "pfs", "cp", path, str(tmp_path / "back"))
    assert fetched.status == 0 and (tmp_path / "back").read_text() == "of alice", fetched


def test_username_that_is_not_the_one_of_the_certificate(tls: TlsCluster, tmp_path: Path) -> None:
    bob = issue(tls, "bob", tmp_path / "bob")
    package = tmp_path / "package"
    package.mkdir()
    (package / "train.py").write_text("print('trained')\n")
    for words in (("jobs",), ("submit", str(package), "-e", "true"), ("pfs", "ls", "/pfs/dc1/home/alice")):
        done = paddlecloud(tls, tmp_path, bob, *words, username="alice")
        assert (done.status, done.out.replace("Collecting package ... Done\n", "")) == (1, ""), done
        assert done.err.splitlines() == [
            f"paddlecloud: The certificate {bob[0]} is that of bob, but username of the datacenter dc1 is "
            "alice.",
            "             Correct username or usercert in ~/.paddle/config.",
        ]
    # The same name, or none, means the user of the certificate.
    for username in ("bob", ""):
        words = ("submit", str(package), "-e", "true", "-pservers", "0", "-m", "64Mi")
        done = paddlecloud(tls, tmp_path, bob, *words, username=username)
        assert (done.status, done.out.count("Done")) == (0, 3), done
        listed = paddlecloud(tls, tmp_path, bob, "get", "-a", "jobs", username=username)
        assert listed.out.splitlines()[1].startswith("bob "), listed
    files = paddlecloud(tls, tmp_path, bob, "pfs", "ls", "/pfs/dc1/home/bob/package")
    assert "/pfs/dc1/home/bob/package/train.py\n" in files.out, files


def test_expired_certificate_of_the_cluster_is_told(tls: TlsCluster, tmp_path: Path) -> None:
    keys = tls.home / "keys"
    issue(tls, "alice", tmp_path / "alice")  # the authority exists from then on
    authority = CertificateAuthority.load(keys / "user-authority.pem", keys / "user-authority-key.pem")
    files = authority.issue(tmp_path / "old", "alice", days=-1)
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        tls.call(files, "GET", "/api/v1/token2user")
    (tmp_path / "data").write_text("x")
    for words in (("jobs",), ("pfs", "cp", str(tmp_path / "data"), "/pfs/dc1/home/alice/new")):
        done = paddlecloud(tls, tmp_path, files, *words)
        assert (done.status, done.out) == (1, ""), (words, done)
        first, second = done.err.splitlines()
        assert first.startswith(
            "paddlecloud: The datacenter dc1 does not accept you: your certificate has expired, on 20"
        )
        assert second.endswith(f"Ask its administrator for a new one, and put it into {files[0]}.")
