"""Each row of the table of routes is asked for once, and answers well and as described."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from support.server_fixture import Reply, eventually, job
from support.team_cluster import PASSWORD, TeamCluster

NewTeam = Callable[..., TeamCluster]
SSH = {"com.microsoft.pai.runtimeplugin": [{"plugin": "ssh", "parameters": {"jobssh": True}}]}
# As in the original, which took it away with version 1 and left the address.
NEVER = {("GET", "/api/v2/jobs/{framework}/ssh")}
# Whose good answer leads somewhere else.
REDIRECTS = {("POST", "/job-detail.html")}
# It is there for those who look for it, and empty.
MARKETPLACE = "/marketplace/api/"


class Walk:
    """Asks as an administrator, unless told otherwise, and expects success."""

    def __init__(self, cluster: TeamCluster):
        self.cluster = cluster

    def __call__(self, method: str, path: str, body: Any = None, who: str = "admin", **more: Any) -> Reply:
        more.setdefault("token", self.cluster.tokens[who])
        reply = self.cluster.ask(method, path, body, **more)
        assert reply.status < 300, f"{method} {path}: {reply.status} {reply.text}"
        return reply


def v1_job(name: str, command: str = "true") -> dict[str, Any]:
    role = {"name": "main", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 64, "gpuNumber": 0}
    return {"jobName": name, "image": "ubuntu:22.04", "taskRoles": [{**role, "command": command}]}


@pytest.mark.slow
def test_every_described_route_answers_well(new_team: NewTeam) -> None:
    cluster = new_team()
    walk = Walk(cluster)
    about_the_server(walk)
    tokens(walk)
    jobs(walk)
    logs(walk)
    jobs_of_version_one(walk)
    people(walk)
    shares(walk)
    what_there_is(walk)
    assert cluster.description is not None
    paths = cluster.description.document["paths"]
    rows = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    well = {(method, path) for method, path, status in cluster.description.seen if status < 300}
    left = {row for row in rows - well - NEVER - REDIRECTS if not row[1].startswith(MARKETPLACE)}
    assert sorted(left) == []


def about_the_server(walk: Walk) -> None:
    for path in ("/healthz", "/metrics", "/openapi.json", "/api/v2/authn/info", "/api/v1/authn/info"):
        walk("GET", path)
    for method in ("GET", "POST"):
        walk(method, "/prometheus/api/v1/query?query=paicluster_jobs")
        walk(method, "/prometheus/api/v1/query_range?query=paicluster_jobs&start=0&end=9999999999&step=60")
    for path in ("/api/v2", "/api/v2/info", "/api/v1"):
        for method in ("GET", "POST", "PUT", "DELETE"):
            walk(method, path, token=None)
    page = "/job-detail.html?username=alice&jobName=x"
    walk("GET", page, token=None)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    signed = walk.cluster.ask("POST", page, f"token={walk.cluster.token}".encode(), form, token=None)
    assert signed.status == 303


def tokens(walk: Walk) -> None:
    who = {"username": "bob", "password": PASSWORD}
    for version, of_tokens in (("v2", "tokens"), ("v1", "token")):
        base = f"/api/{version}"
        session = walk("POST", f"{base}/authn/basic/login", who, token=None).json()["token"]
        walk("GET", f"{base}/{of_tokens}", token=session)
        made = walk("POST", f"{base}/{of_tokens}/application", token=session).json()["token"]
        walk("GET", f"{base}/{of_tokens}/check", token=made)
        walk("DELETE", f"{base}/{of_tokens}/{made}", token=session)
        walk("DELETE", f"{base}/authn/basic/logout", token=session)
    walk("POST", "/api/v1/token", who, token=None)


def jobs(walk: Walk) -> None:
    sources = b"not really a tar"
    digest = hashlib.sha256(sources).hexdigest()
    walk("PUT", f"/api/v2/sources/{digest}", sources, who="alice")
    walk("HEAD", f"/api/v2/sources/{digest}", who="alice")
    walk("POST", "/api/v2/jobs", job("seen", "echo seen", "sleep 600", extras=SSH), who="alice")
    walk.cluster.wait_state("seen", "RUNNING")
    walk("GET", "/api/v2/jobs")
    of_job = "/api/v2/jobs/alice~seen"
    for rest in (
        "",
        "/follow?follow=false",
        "/config",
        "/events",
        "/metrics",
        "/attempts/0",
        "/attempts/0/taskRoles/main/taskIndex/0/attempts",
        "/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs",
        "/job-attempts",
        "/job-attempts/healthz",
        "/job-attempts/0",
    ):
        walk("GET", of_job + rest)
    walk("PUT", f"{of_job}/tag", {"value": "one"}, who="alice")
    walk("DELETE", f"{of_job}/tag", {"value": "one"}, who="alice")


def logs(walk: Walk) -> None:
    base = f"http://{walk.cluster.address[0]}:{walk.cluster.address[1]}"
    detail = walk("GET", "/api/v1/user/alice/jobs/seen").json()
    pages = detail["taskRoles"]["main"]["taskStatuses"][0]["containerLog"].removeprefix(base)
    for rest in ("", "user.pai.stdout", "user.pai.stdout/"):
        walk("GET", pages + rest, token=None)
    where = walk(
        "GET", "/api/v2/jobs/alice~seen/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
    ).json()
    walk("GET", where["locations"][0]["uri"], token=None)
    manager, _, query = where["locations"][0]["uri"].partition("/api/v1/logs/")
    walk("GET", f"{manager}/api/v1/logs?{query.partition('?')[2]}", token=None)
    walk("POST", f"{manager}/api/v1/tokens", {"username": "bob", "password": PASSWORD}, token=None)
    for address in ("/api/v1/user/alice/jobs/seen/ssh", "/api/v1/jobs/alice~seen/ssh"):
        link = walk("GET", address, who="alice").json()["keyPair"]["privateKeyDirectDownloadLink"]
        walk("GET", link.removeprefix(base), token=None)
    walk("PUT", "/api/v2/jobs/alice~seen/executionType", {"value": "STOP"}, who="alice")


def jobs_of_version_one(walk: Walk) -> None:
    for base in ("/api/v1/jobs", "/api/v1/user/alice/jobs"):
        posted, put = f"posted_{len(base)}", f"put_{len(base)}"
        walk("POST", base, v1_job(posted), who="alice")
        walk("PUT", f"{base}/{put}", v1_job(put, "sleep 600"), who="alice")
        walk("GET", base, who="alice")
        walk("GET", f"{base}/{put}", who="alice")
        walk("GET", f"{base}/{put}/config", who="alice")
        walk("PUT", f"{base}/{put}/executionType", {"value": "STOP"}, who="alice")

        def is_removed(address: str = f"{base}/{put}") -> bool:
            return walk.cluster.ask("DELETE", address, token=walk.cluster.tokens["alice"]).status == 202

        eventually(is_removed, "a job that is over, and gone")


def people(walk: Walk) -> None:
    for of_users, of_groups in (("users", "groups"), ("user", "group")):
        users, groups = f"/api/v2/{of_users}", f"/api/v2/{of_groups}"
        new = {"username": "dora", "password": PASSWORD, "virtualCluster": ["default"]}
        walk("POST", users, new)
        walk("GET", users)
        walk("GET", f"{users}/dora")
        walk("PUT", users, {"patch": True, "data": {"username": "dora", "email": "dora@example.com"}})
        own = {"patch": True, "data": {"username": "alice", "email": "alice@example.com"}}
        walk("PUT", f"{users}/me", own, who="alice")
        walk("POST", groups, {"groupname": "crew", "description": "a crew"})
        walk("GET", groups)
        walk("GET", f"{groups}/crew")
        walk("PUT", groups, {"patch": True, "data": {"groupname": "crew", "description": "the crew"}})
        walk("PUT", f"{groups}/crew/extension", {"extension": {"note": 1}})
        walk("PUT", f"{groups}/crew/extension/note", {"data": 2})
        walk("PUT", f"{groups}/crew/description", {"description": "ours"})
        walk("PUT", f"{groups}/crew/externalname", {"externalName": "them"})
        walk("PUT", f"{users}/dora/group", {"groupname": "crew"})
        walk("GET", f"{groups}/crew/userlist")
        walk("DELETE", f"{users}/dora/group", {"groupname": "crew"})
        walk("PUT", f"{users}/dora/grouplist", {"grouplist": ["crew"]})
        walk("PUT", f"{users}/dora/extension", {"extension": {"note": 1}})
        walk("PUT", f"{users}/dora/virtualcluster", {"virtualCluster": ["default"]})
        walk("PUT", f"{users}/dora/password", {"newPassword": "another password"})
        walk("PUT", f"{users}/dora/email", {"email": ""})
        walk("PUT", f"{users}/dora/admin", {"admin": False})
        walk("DELETE", f"{users}/dora")
        walk("DELETE", f"{groups}/crew")
    walk("PUT", "/api/v1/user", {"username": "emil", "password": PASSWORD, "admin": False, "modify": False})
    walk("GET", "/api/v1/user/emil")
    walk("PUT", "/api/v1/user/emil/virtualClusters", {"virtualClusters": "default"})
    walk("DELETE", "/api/v1/user", {"username": "emil"})


def shares(walk: Walk) -> None:
    for version in ("v2", "v1"):
        base = f"/api/{version}/virtual-clusters"
        walk("PUT", f"{base}/lab", {"vcCapacity": 25, "vcMaxCapacity": 50})
        walk("GET", base)
        walk("GET", f"{base}/lab")
        walk("PUT", f"{base}/lab/status", {"vcStatus": "stopped"})
        walk("DELETE", f"{base}/lab")


def what_there_is(walk: Walk) -> None:
    name = walk("GET", "/api/v2/storages").json()["storages"][0]["name"]
    for path in (
        f"/api/v2/storages/{name}",
        "/api/v2/storage/config",
        "/api/v2/storage/configs",
        f"/api/v2/storage/config/{name}",
        "/api/v2/storage/server",
        "/api/v2/storage/servers",
        f"/api/v2/storage/server/{name}",
        "/api/v2/virtual-clusters/default/sku-types",
        "/api/v2/cluster/sku-types",
        "/api/v2/alerts",
        "/alert-manager/api/v1/alerts",
        "/api/v2/kubernetes/nodes",
        "/api/v2/kubernetes/pods",
        "/api/v1/kubernetes/nodes",
        "/api/v1/kubernetes/pods",
    ):
        walk("GET", path)
    walk("POST", "/api/v2/storage/configs", {"names": [name]})
    walk("POST", "/api/v2/storage/servers", {"names": [name]})
    for where, body in (
        ("/api/v2/storage/server", {"spn": "nas", "type": "nfs", "data": {"address": "x", "rootPath": "/"}}),
        ("/api/v2/storage/config", {"name": "team", "servers": ["nas"]}),
    ):
        key = next(iter(body))
        walk("POST", where, body)
        walk("PUT", where, body)
        walk("DELETE", where, {key: body[key]})
        walk("POST", where, body)
        walk("DELETE", f"{where}/{body[key]}")
