"""Kinds of tokens: each is sent to every route, and is accepted where the route's authority says so."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from paicluster.api.route_reference import current_page
from paicluster.api.routes import ROUTES
from paicluster.api.routing.authority import ACCOUNT, CLUSTER, Authority
from paicluster.api.webhdfs import token_codec
from paicluster.auth.tokens import TokenKind
from support.paths import REPOSITORY
from support.server_fixture import job
from support.team_cluster import PASSWORD, TeamCluster

# Messages of a refusal by kind, and of one because the user is no administrator.
WRONG_KIND = re.compile("(Applications|Jobs|Delegation tokens) are not allowed to do this operation.")
NOT_ADMIN = "Non-admin is not allow to do this operation."
# Routes that end the session that is sent to them get a fresh one.
LOGOUT = re.compile(r"/authn/(basic/logout|session)$")
FILES = re.compile(r"/(webhdfs|api/v2/transfer)\b")
# Operations of WebHDFS that change nothing where the path does not exist.
OPERATIONS = {"GET": "GETFILESTATUS", "PUT": "SETTIMES", "POST": "TRUNCATE", "DELETE": "DELETE"}


@dataclass(frozen=True)
class Sender:
    user: str
    kind: TokenKind
    token: str

    @property
    def admin(self) -> bool:
        return self.user == "admin" and self.kind is not TokenKind.JOB


def delegation_token(team: TeamCluster, user: str) -> str:
    reply = team.get("/webhdfs/v1/?op=GETDELEGATIONTOKEN", token=team.tokens[user])
    return token_codec.decode(reply.json()["Token"]["urlString"])


@pytest.fixture(scope="module")
def senders(team: TeamCluster) -> list[Sender]:
    made = []
    for user in ("alice", "admin"):
        session = team.tokens[user]
        application = team.ask("POST", "/api/v2/tokens/application", token=session).json()["token"]
        made += [
            Sender(user, TokenKind.LOGIN, session),
            Sender(user, TokenKind.APPLICATION, application),
            Sender(user, TokenKind.JOB, team.token_of_job(f"holder_of_{user}", session)),
            Sender(user, TokenKind.DELEGATION, delegation_token(team, user)),
        ]
    return made


def requests() -> Iterator[tuple[str, str, Authority]]:
    """Method and path of every route, with names in the path that do not exist.

    `{user}` remains where users reach only themselves, and each group has one that they are in.
    """
    for route in ROUTES:
        path = re.sub(r"\{\w+:uuid\}", "6fa459ea-ee8a-3ca4-894e-db77e160355e", route.path)
        path = re.sub(r"\{\w+:count\}", "7", path)
        path = re.sub(r"\{sha256\}", "0" * 64, path)
        authority = route.authority
        if authority is CLUSTER:
            path = path.replace("{group}", "default")
        elif authority is not ACCOUNT:
            path = path.replace("{user}", "nothing")
        path = re.sub(r"\{(?!user\})\w+(:\w+)?\}", "nothing", path)
        for method in route.methods:
            query = f"?op={OPERATIONS[method]}" if "/webhdfs" in path else ""
            yield method, path + query, authority


class Connection:
    """One connection for thousands of requests."""

    def __init__(self, team: TeamCluster):
        self._connection = http.client.HTTPConnection(*team.address, timeout=90)

    def send(self, method: str, path: str, token: str | None) -> tuple[int, str]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection.request(method, path, b"", headers)
        response = self._connection.getresponse()
        body = response.read()
        try:
            content: Any = json.loads(body)
        except ValueError:
            content = body.decode(errors="replace")
        if isinstance(content, dict):
            content = content.get("message") or content.get("error") or content
            content = content.get("message", content) if isinstance(content, dict) else content
        return response.status, str(content)


@pytest.mark.slow
def test_every_kind_of_token_is_sent_to_every_route(team: TeamCluster, senders: list[Sender]) -> None:
    connection = Connection(team)
    wrong = []
    for method, path, authority in requests():
        for sender in senders:
            token = sender.token
            if LOGOUT.search(path) and sender.kind is TokenKind.LOGIN:
                token = team.log_in(sender.user)
            status, message = connection.send(method, path.replace("{user}", sender.user), token)
            refused_kind = status == 403 and (method == "HEAD" or WRONG_KIND.search(message) is not None)
            refused_user = status == 403 and message == NOT_ADMIN
            if not authority.kinds:  # public, or with a ticket: tokens make no difference
                expected = (False, False)
            elif sender.kind not in authority.kinds:
                expected = (True, False)
            else:
                expected = (False, authority.admin and not sender.admin)
            accepted = status != 401 or not authority.kinds
            if (refused_kind, refused_user) != expected or not accepted:
                wrong.append(f"{method} {path} as {sender.user}, {sender.kind}: {status} {message[:80]}")
        status, message = connection.send(method, path, None)
        if authority.kinds and not authority.is_public and status != 401:
            wrong.append(f"{method} {path} without a token: {status} {message[:80]}")
    assert not wrong, "\n".join(wrong)


def test_delegation_tokens_reach_files_only() -> None:
    reached = {path for _, path, authority in requests() if TokenKind.DELEGATION in authority.kinds}
    assert reached
    assert [path for path in sorted(reached) if not FILES.search(path)] == []


def test_job_tokens_reach_no_tokens_users_groups_or_administration() -> None:
    forbidden = re.compile(
        r"/(tokens?|users?|groups?|authn|kubernetes|marketplace|alerts|metrics$|prometheus)"
    )
    reached = {
        path
        for _, path, authority in requests()
        if TokenKind.JOB in authority.kinds and not re.match("/api/v1/user/nothing/jobs", path)
    }
    assert [path for path in sorted(reached) if forbidden.search(path.replace("/api/v2/jobs", ""))] == [
        "/api/v2/jobs/nothing/metrics"
    ]
    assert not any(authority.admin and TokenKind.JOB in authority.kinds for _, _, authority in requests())


def test_table_of_token_kinds_in_the_documentation_is_current() -> None:
    path = REPOSITORY / "docs/contributing/api.md"
    page = path.read_text()
    assert current_page(path) == page, "run `make docs`"
    assert "| `/api/v2/tokens` | GET | - | yes | - | - | - |" in page


# -- job tokens ------------------------------------------------------------------------------------


def test_job_token_lists_jobs_of_its_user_only(team: TeamCluster, senders: list[Sender]) -> None:
    token = next(s.token for s in senders if (s.user, s.kind) == ("alice", TokenKind.JOB))
    assert team.submit(job("of_bob", "true"), token=team.tokens["bob"]).status == 202
    for path in ("/api/v2/jobs", "/api/v2/jobs?keyword=o", "/api/v2/jobs?reasons=true", "/api/v1/jobs"):
        users = {one["username"] for one in team.get(path, token=token).json()}
        assert users == {"alice"}, path
    assert {one["username"] for one in team.get("/api/v2/jobs").json()} >= {"alice", "bob"}
    counted = team.get("/api/v2/jobs?withTotalCount=true&limit=1", token=token).json()
    assert (
        counted["totalCount"]
        == team.get("/api/v2/jobs?withTotalCount=true&limit=1&username=alice").json()["totalCount"]
    )
    for path in ("/api/v2/jobs?username=bob", "/api/v2/jobs?username=alice,bob", "/api/v1/user/bob/jobs"):
        refused = team.get(path, token=token)
        assert refused.status == 403, path
        assert refused.json()["message"] == "A job of user alice is not allowed to list jobs of bob."


def test_job_token_submits_and_reads_jobs_of_its_user(team: TeamCluster, senders: list[Sender]) -> None:
    token = next(s.token for s in senders if (s.user, s.kind) == ("alice", TokenKind.JOB))
    sources = b"of a task"
    digest = hashlib.sha256(sources).hexdigest()
    assert team.ask("PUT", f"/api/v2/sources/{digest}", sources, token=token).status == 201
    assert team.submit(job("from_a_task", "echo made"), token=token).status == 202
    team.wait_over("from_a_task")
    for rest in ("", "/config", "/events", "/follow?follow=false"):
        assert team.get(team.path("from_a_task", rest), token=token).status == 200, rest
    for path in ("/api/v2/storages", "/api/v2/virtual-clusters", "/api/v2/transfer"):
        assert team.get(path, token=token).status == 200, path
    deleted = team.ask("DELETE", "/api/v1/jobs/from_a_task", token=token)
    assert deleted.json()["message"] == "Jobs are not allowed to do this operation."


# -- delegation tokens -----------------------------------------------------------------------------


def test_delegation_token_reads_and_writes_files(team: TeamCluster, senders: list[Sender]) -> None:
    token = next(s.token for s in senders if (s.user, s.kind) == ("alice", TokenKind.DELEGATION))
    made = team.ask("PUT", f"/webhdfs/v1/user/alice/made?op=MKDIRS&delegation={token}", token=None)
    assert made.json() == {"boolean": True}
    tree = team.get("/api/v2/transfer/tree?path=/user/alice", token=token)
    assert (tree.status, "made" in tree.text) == (200, True)
    refused = team.get("/api/v2/tokens", token=token)
    assert (refused.status, refused.json()["code"]) == (403, "ForbiddenUserError")
    assert refused.json() == {
        "code": "ForbiddenUserError",
        "message": "Delegation tokens are not allowed to do this operation.",
        "hint": "They are for WebHDFS and transfers only: log in.",
    }


# -- passwords -------------------------------------------------------------------------------------


def test_v1_user_changes_the_own_password_with_the_old_one_only(team: TeamCluster) -> None:
    admin = team.tokens["admin"]
    new = {"username": "carla", "password": PASSWORD, "admin": False, "modify": False}
    assert team.ask("PUT", "/api/v1/user", new, token=admin).status == 201
    token = team.log_in("carla")
    change = {"username": "carla", "password": "stolen by a token", "modify": True}
    missing = team.ask("PUT", "/api/v1/user", change, token=token)
    assert missing.status == 403
    assert missing.json()["message"] == "Pls input the correct password."
    assert missing.json()["hint"] == 'Send the current password as "oldPassword".'
    wrong = team.ask("PUT", "/api/v1/user", {**change, "oldPassword": "a guess"}, token=token)
    assert (wrong.status, wrong.json()["message"]) == (403, "Pls input the correct password.")
    assert team.log_in("carla")
    changed = team.ask("PUT", "/api/v1/user", {**change, "oldPassword": PASSWORD}, token=token)
    assert changed.status == 201
    by_admin = {"username": "carla", "password": PASSWORD, "modify": True}
    assert team.ask("PUT", "/api/v1/user", by_admin, token=admin).status == 201
    assert team.log_in("carla")
