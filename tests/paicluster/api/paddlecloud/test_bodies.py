"""Bodies of PaddleCloud's small requests: errors in them are replies of this dialect."""

from __future__ import annotations

from typing import Any

import pytest

from support.paddlecloud_go_client import GoClient
from support.team_cluster import PASSWORD, TeamCluster

NOT_JSON = "The request's body is not valid JSON."
NOT_AN_OBJECT = "The request's body must be a JSON object."
NO_TEXT = "must be text of 1 to 4096 characters."
NO_JOB_NAME = "jobname must be the name of a job."
NO_FLAG = "rm must be true or false."
NO_PATH = "path must be the path of a file."
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
REGISTRY = {"name": "hub", "username": "u", "password": "p", "server": "s"}


@pytest.mark.parametrize(
    ("target", "body", "problem"),
    [
        ("POST /api/v1/registry", "", NOT_JSON),
        ("POST /api/v1/registry", [], NOT_AN_OBJECT),
        ("POST /api/v1/registry", {}, f"name {NO_TEXT}"),
        ("POST /api/v1/registry", {"name": None, "username": 1}, f"name {NO_TEXT}"),
        (
            "POST /api/v1/registry",
            {"name": "a b"},
            "name must be the name of a registry: letters, digits, '.' and '-'.",
        ),
        ("POST /api/v1/registry", {"name": "hub", "server": 1}, f"username {NO_TEXT}"),
        ("POST /api/v1/registry", {**REGISTRY, "password": ""}, f"password {NO_TEXT}"),
        ("POST /api/v1/registry", {**REGISTRY, "server": "x" * 4097}, f"server {NO_TEXT}"),
        ("DELETE /api/v1/registry", "", NOT_JSON),
        ("DELETE /api/v1/registry", {"username": "u"}, f"name {NO_TEXT}"),
        # Only the name is read.
        ("DELETE /api/v1/registry", {"name": "none", "username": 1}, "There is no registry none."),
        ("POST /api/v1/publish", "{", NOT_JSON),
        ("POST /api/v1/publish", {}, NO_PATH),
        ("POST /api/v1/publish", {"path": 1}, NO_PATH),
        ("POST /api/v1/publish", {"path": ""}, "should be pfs path:"),
        ("DELETE /api/v1/jobs", "", NO_JOB_NAME),
        ("DELETE /api/v1/jobs", {"rm": 1}, NO_JOB_NAME),
        ("DELETE /api/v1/jobs", {"jobname": ""}, NO_JOB_NAME),
        ("DELETE /api/v1/trainingjobs", {"jobname": "no-such-job", "rm": None}, NO_FLAG),
        ("DELETE /api/v1/jobs/no-such-job", {"jobname": 1, "rm": "true"}, NO_FLAG),
        # The name in the path is the job.
        (
            "DELETE /api/v1/jobs/no-such-job",
            {"jobname": 1, "other": 2},
            "There is no job no-such-job. paddlecloud get -a jobs lists yours.",
        ),
        ("DELETE /api/v1/jobs/no-such-job", "nonsense", NOT_JSON),
    ],
)
def test_first_problem_is_the_message_of_a_reply(
    cluster: TeamCluster, go: GoClient, target: str, body: Any, problem: str
) -> None:
    method, path = target.split()
    # The slash marks a client of PaddleCloud on the paths that OpenPAI has, too.
    reply = cluster.ask(method, f"{path}/", body, {"Authorization": f"Token {go.token}"}, token=None)
    assert reply.status == 200
    assert reply.json()["msg"] == problem


@pytest.mark.parametrize(
    "target",
    ["POST /api/v1/registry", "DELETE /api/v1/registry", "POST /api/v1/publish", "DELETE /api/v1/jobs"],
)
def test_caller_is_authenticated_before_the_body_is_read(cluster: TeamCluster, target: str) -> None:
    method, path = target.split()
    for body in ("{", "x" * (1 << 20) + "x"):
        reply = cluster.ask(method, f"{path}/", body, {"Authorization": "Token nonsense"}, token=None)
        assert (reply.status, reply.json()["code"]) == (401, 401)


def test_body_that_is_too_large_is_413(cluster: TeamCluster, go: GoClient) -> None:
    token = {"Authorization": f"Token {go.token}"}
    reply = cluster.ask("POST", "/api/v1/publish/", "x" * (1 << 20) + "x", token, token=None)
    assert reply.status == 413


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("", NOT_JSON),
        ([], NOT_AN_OBJECT),
        ({}, '"username" is required'),
        ({"username": "", "password": 1}, '"username" is not allowed to be empty'),
        ({"username": None}, '"username" must be a string'),
        ({"username": "alice"}, '"password" is required'),
        ({"username": "alice", "password": 1}, '"password" must be a string'),
        ("x" * (64 << 10) + "x", "The request's body is larger than 64 KB."),
    ],
)
def test_problem_with_a_login_is_in_djangos_form(cluster: TeamCluster, body: Any, problem: str) -> None:
    reply = cluster.ask("POST", "/api-token-auth/", body, token=None)
    assert (reply.status, reply.json()) == (400, {"non_field_errors": [problem]})


def test_bodies_may_be_forms(cluster: TeamCluster, go: GoClient) -> None:
    login = f"username=alice&password={PASSWORD.replace(' ', '+')}"
    assert cluster.ask("POST", "/api-token-auth/", login, FORM, token=None).json() == {"token": go.token}
    headers = {"Authorization": f"Token {go.token}", **FORM}
    added = cluster.ask(
        "POST", "/api/v1/registry/", "name=form&username=u&password=p&server=s", headers, token=None
    )
    assert added.json() == {"code": 200, "msg": ""}
    assert cluster.ask("DELETE", "/api/v1/registry/", "name=form", headers, token=None).json() == added.json()
