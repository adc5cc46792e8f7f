"""Permissions: jobs of other users, application tokens, job tokens, anonymous readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.server_fixture import job
from support.team_cluster import PASSWORD, TeamCluster


def test_all_users_see_jobs_but_only_owner_and_admins_change_them(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "sleep 600"))
    where, bob = cluster.path(name), cluster.tokens["bob"]
    for rest in ("", "/config", "/events", "/attempts/0", "/job-attempts"):
        assert cluster.get(where + rest, token=bob).status == 200, rest
    refused = cluster.ask("PUT", f"{where}/executionType", {"value": "STOP"}, token=bob)
    assert (refused.status, refused.json()["code"]) == (403, "ForbiddenUserError")
    stopped = cluster.ask("PUT", f"{where}/executionType", {"value": "STOP"}, token=cluster.tokens["admin"])
    assert stopped.status == 202
    assert cluster.wait_over(name)["state"] == "STOPPED"


def test_application_token_is_limited_to_jobs(cluster: TeamCluster, name: str) -> None:
    application_token = cluster.ask("POST", "/api/v2/tokens/application").json()["token"]
    assert cluster.submit(job(name, "sleep 600"), token=application_token).status == 202
    for path in ("/api/v2/jobs", cluster.path(name), "/api/v2/virtual-clusters", "/api/v2/storages"):
        assert cluster.get(path, token=application_token).status == 200
    assert (
        cluster.ask("PUT", cluster.path(name, "/tag"), {"value": "x"}, token=application_token).status == 200
    )
    stop = cluster.ask(
        "PUT", cluster.path(name, "/executionType"), {"value": "STOP"}, token=application_token
    )
    assert stop.status == 202
    for method, path, body in (
        ("PUT", "/api/v2/users/me", {"patch": True, "data": {"username": "alice", "email": ""}}),
        ("PUT", "/api/v2/users/alice/email", {"email": ""}),
        ("DELETE", "/api/v2/authn/basic/logout", None),
        ("POST", "/api/v2/groups", {"groupname": "x"}),
        ("PUT", "/api/v2/virtual-clusters/x", {"vcCapacity": 1}),
    ):
        reply = cluster.ask(method, path, body, token=application_token)
        assert (reply.status, reply.json()["code"]) == (403, "ForbiddenUserError"), path
    cluster.wait_over(name)


def test_job_token_sees_jobs_of_its_user_only_and_expires_with_the_job(
    cluster: TeamCluster, name: str
) -> None:
    file = cluster.home.parent / f"{name}.token"
    script = f"umask 077; echo $PAI_USER_TOKEN > {file}.part; mv {file}.part {file}; sleep 600"
    cluster.accept(job(name, script))
    mine = name + "-mine"
    cluster.run(job(mine, "echo mine"))
    other = cluster.submit(job(name + "-other", "echo theirs"), token=cluster.tokens["bob"])
    assert other.status == 202
    cluster.wait_state(name, "RUNNING")
    from support.server_fixture import eventually

    eventually(file.exists, "the token")
    token = file.read_text().strip()
    assert cluster.get(cluster.path(mine), token=token).status == 200
    theirs = f"/api/v2/jobs/bob~{name}-other"
    eventually(lambda: cluster.get(theirs).json()["jobStatus"]["state"] == "SUCCEEDED", "its end")
    task = cluster.get(theirs).json()["taskRoles"]["main"]["taskStatuses"][0]
    for path in (
        theirs,
        theirs + "/config",
        theirs + "/events",
        theirs + "/attempts/0",
        theirs + "/follow?follow=false",
        theirs + "/job-attempts",
        task["containerLog"],
        f"/api/v1/user/bob/jobs/{name}-other",
        f"/api/v1/user/bob/jobs/{name}-other/config",
        f"/log-manager/x/api/v1/logs/stdout?pod-uid={task['containerId']}",
    ):
        assert cluster.get(path).status == 200, path
        refused = cluster.get(path, token=token)
        assert (refused.status, refused.json()["code"]) == (403, "ForbiddenUserError"), path
    assert cluster.ask("POST", "/api/v2/tokens/application", token=token).status == 403
    assert cluster.get("/api/v2/users/alice", token=token).status == 403
    cluster.stop(name)
    cluster.wait_over(name)
    assert cluster.get(cluster.path(mine), token=token).status == 401


FILE = """
home: .
listen: {port: 0}
allow-shared-account: true
authentication: {anonymous-v1-reads: true}
"""


@pytest.fixture(scope="module")
def open_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    home = tmp_path_factory.mktemp("anonymous") / "home"
    home.mkdir()
    (home / "cluster.yaml").write_text(FILE)
    options = ("--config", str(home / "cluster.yaml"), "--cpus", "8", "--memory-mb", "800")
    cluster = TeamCluster(home, options, {"PAICLUSTER_ADMIN_PASSWORD": PASSWORD})
    try:
        cluster.start()
        cluster.token = cluster.tokens["admin"] = cluster.log_in("admin")
        cluster.user = "admin"
        yield cluster
    finally:
        cluster.close()


def test_anonymous_v1_reads(open_cluster: TeamCluster, name: str) -> None:
    cluster = open_cluster
    cluster.run(job(name, "echo hello"))

    def ask(path: str) -> Any:
        return cluster.get(path, token=None)

    assert name in [one["name"] for one in ask("/api/v1/jobs").json()]
    assert name in [one["name"] for one in ask("/api/v1/user/admin/jobs").json()]
    for path in (f"/api/v1/user/admin/jobs/{name}", f"/api/v1/jobs/{name}", f"/api/v1/jobs/admin~{name}"):
        assert ask(path).json()["jobStatus"]["state"] == "SUCCEEDED", path
        assert ask(path + "/config").json()["name"] == name, path
        assert ask(path + "/ssh").json()["code"] == "NoJobSshInfoError", path
    for rest in ("", "/config", "/ssh"):
        assert ask(f"/api/v1/jobs/none{rest}").json()["code"] == "NoJobError"
    assert "default" in ask("/api/v1/virtual-clusters").json()
    assert ask("/api/v1/virtual-clusters/default").status == 200
    for path in (
        "/api/v1/user/admin",
        "/api/v1/token",
        "/api/v2/jobs",
        f"/api/v2/jobs/admin~{name}",
        "/api/v2/virtual-clusters",
    ):
        assert ask(path).status == 401, path
    for method, path, body in (
        ("POST", "/api/v1/jobs", {"jobName": "x", "image": "x", "taskRoles": []}),
        ("PUT", f"/api/v1/user/admin/jobs/{name}/executionType", {"value": "STOP"}),
        ("DELETE", f"/api/v1/user/admin/jobs/{name}", None),
    ):
        assert cluster.ask(method, path, body, token=None).status == 401
    bad = cluster.get("/api/v1/jobs", token="nonsense")
    assert bad.status == 401, "an invalid token is not the same as no token"
