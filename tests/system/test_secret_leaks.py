"""Planted passwords, tokens and secrets appear only where they belong."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from support.server_fixture import Cluster, job
from support.team_cluster import MACHINE

ADMIN_PASSWORD = "canary-of-the-admin-7GQx"
PASSWORD = "canary-of-carol-pK29"
NEW_PASSWORD = "canary-of-carol-again-w8Lm"
WRONG_PASSWORD = "canary-mistyped-Vt3z"
SERVER_PASSWORD = "canary-of-a-server-Wq8e"
SECRET = "canary-secret-of-a-job-Yq5R"
REGISTRY_PASSWORD = "canary-of-a-registry-Jd0s"
GITHUB_TOKEN = "canary-of-github-Hn6c"
PIN = 90317264518
LINES = ("canary-first-line-Zk3b", "canary-second-line-Qm7t")
SECRETS = {"pin": PIN, "lines": "\n".join(LINES)}

PAI = "from openpaisdk.cli import pai; raise SystemExit(pai())"


@dataclass
class Watched(Cluster):
    """A cluster that keeps every response to users who must not see the secrets."""

    heard: list[tuple[str, bytes]] = field(default_factory=list)

    def listen(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        reply = self.ask(method, path, body, **more)
        self.heard.append((f"{method} {path} -> {reply.status}", repr(reply.headers).encode() + reply.body))
        return reply


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path / "home", MACHINE, {"PAICLUSTER_ADMIN_PASSWORD": ADMIN_PASSWORD})
    made.start_command()
    made.user, made.token = "admin", log_in(made, "admin", ADMIN_PASSWORD)
    yield made
    made.close()


def log_in(cluster: Watched, user: str, password: str) -> str:
    reply = cluster.ask(
        "POST", "/api/v2/authn/basic/login", {"username": user, "password": password}, token=None
    )
    assert reply.status == 200, reply.text
    return str(reply.json()["token"])


def with_secrets(name: str) -> dict[str, Any]:
    described = job(
        name,
        "echo pin: <% $secrets.pin %>; printf 'line: %s\\n' '<% $secrets.lines %>' | sed 's/^/> /'",
        'echo "out: <% $secrets.key %>"; echo "err: <% $secrets.key %>" >&2',
        'echo "token: $PAI_USER_TOKEN" | tee token.txt',
        # A command line that has the secret in it is the user's own doing; a script that has it is ours.
        'test "<% $secrets.key %>" = "$(cat key.txt 2>/dev/null || echo "<% $secrets.key %>")"',
        "sleep 600",
    )
    image = described["prerequisites"][0]
    image["auth"] = {"username": "u", "password": "<% $secrets.registry %>", "registryuri": "r.example.com"}
    return {**described, "secrets": {**SECRETS, "key": SECRET, "registry": REGISTRY_PASSWORD}}


@pytest.mark.slow
def test_planted_secrets_leak_nowhere(cluster: Watched, tmp_path: Path) -> None:
    canaries = [ADMIN_PASSWORD, PASSWORD, NEW_PASSWORD, WRONG_PASSWORD]
    canaries += [SECRET, REGISTRY_PASSWORD, GITHUB_TOKEN, str(PIN), *LINES]
    # -- people
    carol = {"username": "carol", "password": PASSWORD, "extension": {"githubPAT": GITHUB_TOKEN}}
    assert cluster.listen("POST", "/api/v2/users", carol).status == 201
    assert cluster.listen("POST", "/api/v2/users", carol).status == 409
    cluster.listen("POST", "/api/v2/users", {**carol, "username": "!"})
    assert cluster.listen("POST", "/api/v2/users", {"username": "bob", "password": PASSWORD}).status == 201
    first = log_in(cluster, "carol", PASSWORD)
    change = {"oldPassword": PASSWORD, "newPassword": NEW_PASSWORD}
    assert cluster.listen("PUT", "/api/v2/users/carol/password", change, token=first).status == 201
    for who in ("carol", "nobody"):
        wrong = {"username": who, "password": WRONG_PASSWORD}
        assert cluster.listen("POST", "/api/v2/authn/basic/login", wrong, token=None).status == 400
    basic = base64.b64encode(f"carol:{WRONG_PASSWORD}".encode()).decode()
    cluster.listen("GET", "/api/v2/jobs", headers={"Authorization": f"Basic {basic}"}, token=None)
    session = log_in(cluster, "carol", NEW_PASSWORD)
    application = cluster.ask("POST", "/api/v2/tokens/application", token=session).json()["token"]
    gone = cluster.ask("POST", "/api/v2/tokens/application", token=session).json()["token"]
    assert cluster.listen("DELETE", f"/api/v2/tokens/{gone}", token=session).status == 200
    # -- a job with secrets, of either kind of client
    reply = cluster.ask("POST", "/api/v2/jobs", json.dumps(with_secrets("bird")), token=application)
    assert reply.status == 202, reply.text
    cluster.listen("POST", "/api/v2/jobs", json.dumps(with_secrets("bird")), token=application)
    bad = {**with_secrets("bad"), "taskRoles": {}}
    assert cluster.listen("POST", "/api/v2/jobs", json.dumps(bad), token=application).status == 400
    broken = json.dumps(with_secrets("cut"))[:-20]
    assert cluster.listen("POST", "/api/v2/jobs", broken, token=application).status == 400
    cluster.user, mine = "carol", cluster.token
    cluster.token = session
    cluster.wait_state("bird", "RUNNING")
    log = _until(lambda: cluster.log_of("bird"), b"token:")
    assert b"out: ******" in log
    assert b"err: ******" in log
    assert b"pin: ******" in log
    assert b"> line: ******\n> ******\n" in log
    work = next((cluster.home / "tasks").glob("*/*/work/token.txt"))
    job_token = work.read_text().removeprefix("token: ").strip()
    work.unlink()
    tokens = [mine, first, session, application, gone, job_token]
    assert all(token.count(".") == 2 for token in tokens)
    canaries += tokens
    # -- a storage, the page of a job, a password that is guessed at
    server = {"spn": "nas", "type": "samba", "data": {"address": "nas", "password": SERVER_PASSWORD}}
    assert cluster.listen("POST", "/api/v2/storage/server", server, token=mine).status == 201
    assert cluster.listen("POST", "/api/v2/storage/server", server, token=mine).status == 409
    closed = {"name": "nas", "servers": ["nas"], "gpn": "others"}
    assert cluster.listen("POST", "/api/v2/storage/config", closed, token=mine).status == 201
    canaries.append(SERVER_PASSWORD)
    sign_in = "/api/v2/authn/session"
    mistyped = {"username": "carol", "password": WRONG_PASSWORD}
    assert cluster.listen("POST", sign_in, mistyped, token=None).status == 400
    signed = cluster.ask("POST", sign_in, {"username": "carol", "password": NEW_PASSWORD}, token=None)
    cookie = signed.headers["set-cookie"].partition(";")[0]
    proof = signed.json()["proof"]
    canaries += [cookie.partition("=")[2], proof]
    halves = {"Cookie": cookie, "X-PAI-Session-Proof": proof}
    assert cluster.listen("GET", "/api/v2/jobs", headers=halves, token=None).status == 200
    guess = {"oldPassword": WRONG_PASSWORD, "newPassword": NEW_PASSWORD}
    assert cluster.listen("PUT", "/api/v2/users/carol/password", guess, token=session).status == 403
    # -- looking
    assert _in_command_lines(canaries) == []
    cluster.token = log_in(cluster, "bob", PASSWORD)
    canaries.append(cluster.token)
    for token in (cluster.token, mine):
        for path in _places("carol~bird"):
            cluster.listen("GET", path, token=token)
    cluster.listen("GET", "/api/v2/storage/server")
    cluster.listen("GET", "/metrics", token=mine)
    cluster.heard.append(("preview", _preview(tmp_path)))
    cluster.token = mine
    cluster.stop("bird")
    cluster.wait_state("bird", "STOPPED")
    for what, said in cluster.heard:
        assert _found(said, canaries) == [], what
    assert cluster.terminate() == 0
    # -- what is left
    rows = _dump(cluster.home / "cluster.db")
    assert b"carol~bird" in rows
    assert _found(rows, canaries) == []
    for file in (*cluster.home.rglob("*"), cluster.log):
        if file.is_file():
            assert _found(file.read_bytes(), canaries) == [], file


def _until(look: Any, wanted: bytes) -> bytes:
    from support.server_fixture import eventually

    found: bytes = eventually(lambda: seen if wanted in (seen := look()) else None, repr(wanted))
    return found


def _found(data: bytes, canaries: list[str]) -> list[str]:
    """The canaries in it, as they are or as an address has them, or the signature of a token."""
    forms = {canary: {canary, quote(canary), canary.rpartition(".")[2]} for canary in canaries}
    return [canary for canary, known in forms.items() if any(form.encode() in data for form in known)]


def _in_command_lines(canaries: list[str]) -> list[str]:
    seen = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            seen += [f"{canary}: {line!r}" for canary in _found(line, canaries)]
    return seen


def _places(framework: str) -> list[str]:
    user, name = framework.split("~")
    of_job = f"/api/v2/jobs/{framework}"
    task = f"{of_job}/attempts/0/taskRoles/main/taskIndex/0/attempts"
    of_v1 = f"/api/v1/user/{user}/jobs/{name}"
    return [
        "/api/v2/info",
        "/api/v2/jobs",
        "/api/v2/jobs?keyword=canary",
        of_job,
        f"{of_job}/config",
        f"{of_job}/events",
        f"{of_job}/attempts/0",
        f"{of_job}/job-attempts",
        f"{of_job}/follow?follow=false",
        f"{of_job}/ssh",
        task,
        f"{task}/0/logs",
        "/api/v2/users",
        f"/api/v2/users/{user}",
        f"/api/v1/user/{user}",
        "/api/v2/groups",
        "/api/v2/virtual-clusters",
        "/api/v2/storages",
        "/api/v2/storage/config",
        "/api/v2/kubernetes/pods",
        "/api/v2/alerts",
        "/api/v1/jobs",
        of_v1,
        f"{of_v1}/config",
        f"{of_v1}/ssh",
        "/nowhere",
    ]


def _preview(folder: Path) -> bytes:
    """What `pai` shows of a job before it is sent."""
    file = folder / "job.json"
    file.write_text(json.dumps(with_secrets("shown")))
    environment = {**os.environ, "HOME": str(folder)}
    ran = subprocess.run(
        [sys.executable, "-c", PAI, "submit", "--preview", str(file)],
        capture_output=True,
        env=environment,
        cwd=folder,
        timeout=60,
        check=False,
    )
    file.unlink()
    assert b"shown" in ran.stdout, ran.stderr
    return ran.stdout + ran.stderr


def _dump(database: Path) -> bytes:
    """Every value of every row."""
    parts: list[bytes] = []
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as conn:
        # What an index for searching holds lies in tables of its own.
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        names = [row[0] for row in conn.execute(tables)]
        for name in names:
            for row in conn.execute(f'SELECT * FROM "{name}"'):
                parts += [value if isinstance(value, bytes) else str(value).encode() for value in row]
    return b"\n".join(parts)
