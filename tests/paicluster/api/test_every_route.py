"""Every route is called once successfully, and responds as described."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

from support.openapi_check import Description, current_document
from support.paddlecloud_cluster import go_client_of, put_package
from support.paddlecloud_go_client import BOUNDARY
from support.server_fixture import SSH_SERVER, Reply, eventually, job
from support.team_cluster import PASSWORD, TeamCluster

NewTeam = Callable[..., TeamCluster]
# Always empty.
MARKETPLACE = "/marketplace/api/"
# Called in `tests/system/test_cloud_storages.py`, where there is a bucket.
BUCKETS = "/api/v2/storages/{storage}/"


class SuccessfulCalls:
    """Sends requests, by default as an administrator, and expects success."""

    def __init__(self, cluster: TeamCluster):
        self.cluster = cluster

    def __call__(self, method: str, path: str, body: Any = None, user: str = "admin", **more: Any) -> Reply:
        more.setdefault("token", self.cluster.tokens[user])
        reply = self.cluster.ask(method, path, body, **more)
        assert reply.status < 300, f"{method} {path}: {reply.status} {reply.text}"
        return reply


def v1_job(name: str, command: str = "true") -> dict[str, Any]:
    role = {"name": "main", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 64, "gpuNumber": 0}
    return {"jobName": name, "image": "ubuntu:22.04", "taskRoles": [{**role, "command": command}]}


def test_unknown_names_are_errors_of_the_caller(new_team: NewTeam) -> None:
    """No GET of something that does not exist is an error of the server (5xx)."""
    cluster = new_team()
    paths = current_document()["paths"]
    statuses = {}
    for path, methods in paths.items():
        if "get" in methods and "{" in path:
            unknown = re.sub(r"\{[^}]*\}", "no-such-name", path)
            statuses[path] = cluster.get(unknown, token=cluster.tokens["admin"]).status
    assert len(statuses) > 30
    assert {path: status for path, status in statuses.items() if status >= 500} == {}
    for kind in ("config", "server"):
        assert statuses[f"/api/v2/storage/{kind}/{{storage}}"] == 404


@pytest.mark.slow
def test_every_described_route_succeeds(new_team: NewTeam) -> None:
    cluster = new_team()
    description = cluster.description = Description(current_document())
    call = SuccessfulCalls(cluster)
    call_server_routes(call)
    call_token_routes(call)
    call_template_routes(call)
    call_job_routes(call)
    call_log_routes(call)
    call_v1_job_routes(call)
    call_user_and_group_routes(call)
    call_virtual_cluster_routes(call)
    call_storage_and_node_routes(call)
    call_paddlecloud_routes(call)
    paths = description.document["paths"]
    rows = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    succeeded = {(method, path) for method, path, status in description.seen if status < 300}
    left = {row for row in rows - succeeded if not row[1].startswith((MARKETPLACE, BUCKETS))}
    assert sorted(left) == []


def call_server_routes(call: SuccessfulCalls) -> None:
    for path in (
        "/healthz",
        "/healthz/",
        "/metrics",
        "/openapi.json",
        "/api/v2/authn/info",
        "/api/v1/authn/info",
        "/api/v2/runs",
        "/api/v2/job-columns",
    ):
        call("GET", path)
    for method in ("GET", "POST"):
        call(method, "/prometheus/api/v1/query?query=paicluster_jobs")
        call(method, "/prometheus/api/v1/query_range?query=paicluster_jobs&start=0&end=9999999999&step=60")
    for path in ("/api/v2", "/api/v2/info", "/api/v1"):
        for method in ("GET", "POST", "PUT", "DELETE"):
            call(method, path, token=None)
    call("GET", "/", token=None)
    call("GET", "/api/v2/usage")
    call("GET", f"/api/v2/usage/nodes/{socket.gethostname()}")
    call("GET", "/api/v2/usage/virtual-clusters/default")


def call_template_routes(call: SuccessfulCalls) -> None:
    one = "/api/v2/job-templates/admin/from-here"
    call("PUT", one, {"protocol": json.dumps(job("from-here", "true")), "group": "default"})
    call("GET", "/api/v2/job-templates")
    call("GET", one)
    call("DELETE", one)


def call_token_routes(call: SuccessfulCalls) -> None:
    user = {"username": "bob", "password": PASSWORD}
    for version, of_tokens in (("v2", "tokens"), ("v1", "token")):
        base = f"/api/{version}"
        session = call("POST", f"{base}/authn/basic/login", user, token=None).json()["token"]
        call("GET", f"{base}/{of_tokens}", token=session)
        issued = call("POST", f"{base}/{of_tokens}/application", token=session).json()["token"]
        call("GET", f"{base}/{of_tokens}/check", token=issued)
        call("DELETE", f"{base}/{of_tokens}/{issued}", token=session)
        call("DELETE", f"{base}/authn/basic/logout", token=session)
    call("POST", "/api/v1/token", user, token=None)
    call("POST", "/api/v2/authn/session", user, token=None)
    session = call("POST", "/api/v2/authn/basic/login", user, token=None).json()["token"]
    call("POST", "/api/v2/authn/links", token=session)
    call("DELETE", "/api/v2/authn/session", token=session)


def call_job_routes(call: SuccessfulCalls) -> None:
    sources = b"not really a tar"
    digest = hashlib.sha256(sources).hexdigest()
    call("PUT", f"/api/v2/sources/{digest}", sources, user="alice")
    call("HEAD", f"/api/v2/sources/{digest}", user="alice")
    call("POST", "/api/v2/jobs", job("seen", "echo seen", SSH_SERVER), user="alice")
    call.cluster.wait_state("seen", "RUNNING")
    call("GET", "/api/v2/jobs")
    call("POST", "/api/v2/job-checks", job("seen", "true"))
    call("GET", "/api/v2/job-schemas/v2")
    of_job = "/api/v2/jobs/alice~seen"
    for rest in (
        "",
        "/follow?follow=false",
        "/log-search?text=e",
        "/log-times?start=0&end=10",
        "/config",
        "/events",
        "/metrics",
        "/metric-series",
        "/usage",
        "/attempts/0",
        "/attempts/0/taskRoles/main/taskIndex/0/attempts",
        "/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs",
        "/job-attempts",
        "/job-attempts/healthz",
        "/job-attempts/0",
    ):
        call("GET", of_job + rest)
    call("PUT", f"{of_job}/tag", {"value": "one"}, user="alice")
    call("DELETE", f"{of_job}/tag", {"value": "one"}, user="alice")


def call_log_routes(call: SuccessfulCalls) -> None:
    base = f"http://{call.cluster.address[0]}:{call.cluster.address[1]}"
    detail = call("GET", "/api/v1/user/alice/jobs/seen").json()
    pages = detail["taskRoles"]["main"]["taskStatuses"][0]["containerLog"].removeprefix(base)
    for rest in ("", "user.pai.stdout", "user.pai.stdout/"):
        call("GET", pages + rest, token=None)
    where = call(
        "GET", "/api/v2/jobs/alice~seen/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
    ).json()
    call("GET", where["locations"][0]["uri"], token=None)
    manager, _, query = where["locations"][0]["uri"].partition("/api/v1/logs/")
    call("GET", f"{manager}/api/v1/logs?{query.partition('?')[2]}", token=None)
    call("POST", f"{manager}/api/v1/tokens", {"username": "bob", "password": PASSWORD}, token=None)
    of_v1 = "/api/v1/user/alice/jobs/seen/ssh"
    eventually(lambda: call.cluster.get(of_v1, token=call.cluster.tokens["alice"]).status == 200, "SSH")
    for address in (of_v1, "/api/v1/jobs/alice~seen/ssh", "/api/v2/jobs/alice~seen/ssh"):
        link = call("GET", address, user="alice").json()["keyPair"]["privateKeyDirectDownloadLink"]
        call("GET", link.removeprefix(base), token=None)
    call("GET", "/api/v2/jobs/alice~seen/forward", user="alice")
    # Tasks of the process engine share loopback with the server, so its port is one that listens.
    call("POST", f"/api/v2/jobs/alice~seen/apps?port={call.cluster.address[1]}", user="alice")
    call("PUT", "/api/v2/jobs/alice~seen/executionType", {"value": "STOP"}, user="alice")


def call_v1_job_routes(call: SuccessfulCalls) -> None:
    for base in ("/api/v1/jobs", "/api/v1/user/alice/jobs"):
        posted, put = f"posted_{len(base)}", f"put_{len(base)}"
        call("POST", base, v1_job(posted), user="alice")
        call("PUT", f"{base}/{put}", v1_job(put, "sleep 600"), user="alice")
        call("GET", base, user="alice")
        call("GET", f"{base}/{put}", user="alice")
        call("GET", f"{base}/{put}/config", user="alice")
        call("PUT", f"{base}/{put}/executionType", {"value": "STOP"}, user="alice")

        def is_removed(address: str = f"{base}/{put}") -> bool:
            return call.cluster.ask("DELETE", address, token=call.cluster.tokens["alice"]).status == 202

        eventually(is_removed, "a finished job to be deleted")


def call_user_and_group_routes(call: SuccessfulCalls) -> None:
    for of_users, of_groups in (("users", "groups"), ("user", "group")):
        users, groups = f"/api/v2/{of_users}", f"/api/v2/{of_groups}"
        new = {"username": "dora", "password": PASSWORD, "virtualCluster": ["default"]}
        call("POST", users, new)
        call("GET", users)
        call("GET", f"{users}/dora")
        call("PUT", users, {"patch": True, "data": {"username": "dora", "email": "dora@example.com"}})
        own = {"patch": True, "data": {"username": "alice", "email": "alice@example.com"}}
        call("PUT", f"{users}/me", own, user="alice")
        call("POST", groups, {"groupname": "crew", "description": "a crew"})
        call("GET", groups)
        call("GET", f"{groups}/crew")
        call("PUT", groups, {"patch": True, "data": {"groupname": "crew", "description": "the crew"}})
        call("PUT", f"{groups}/crew/extension", {"extension": {"note": 1}})
        call("PUT", f"{groups}/crew/extension/note", {"data": 2})
        call("PUT", f"{groups}/crew/description", {"description": "ours"})
        call("PUT", f"{groups}/crew/externalname", {"externalName": "them"})
        call("PUT", f"{users}/dora/group", {"groupname": "crew"})
        call("GET", f"{groups}/crew/userlist")
        call("DELETE", f"{users}/dora/group", {"groupname": "crew"})
        call("PUT", f"{users}/dora/grouplist", {"grouplist": ["crew"]})
        call("PUT", f"{users}/dora/extension", {"extension": {"note": 1}})
        call("PUT", f"{users}/dora/virtualcluster", {"virtualCluster": ["default"]})
        call("PUT", f"{users}/dora/password", {"newPassword": "another password"})
        call("PUT", f"{users}/dora/email", {"email": ""})
        call("PUT", f"{users}/dora/admin", {"admin": False})
        for is_disabled in (True, False):
            call("PUT", f"{users}/dora/disabled", {"disabled": is_disabled})
        key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKnL2v3bqMCvFdvc0yI2l3zZs7qCkz0k1cAq8W1jT000"
        for method in ("POST", "DELETE"):
            call(method, f"{users}/dora/ssh-keys", {"value": key})
        call("PUT", f"{users}/dora/quota", {"tasks": 4})
        call("GET", f"{users}/dora/quota")
        call("PUT", f"{groups}/crew/quota", {"gpu": 1, "storageBytes": None})
        call("GET", f"{groups}/crew/quota")
        call("DELETE", f"{users}/dora")
        call("DELETE", f"{groups}/crew")
    call("GET", "/api/v2/quota", user="alice")
    call("PUT", "/api/v1/user", {"username": "emil", "password": PASSWORD, "admin": False, "modify": False})
    call("GET", "/api/v1/user/emil")
    call("PUT", "/api/v1/user/emil/virtualClusters", {"virtualClusters": "default"})
    call("DELETE", "/api/v1/user", {"username": "emil"})


def call_virtual_cluster_routes(call: SuccessfulCalls) -> None:
    for version in ("v2", "v1"):
        base = f"/api/{version}/virtual-clusters"
        call("PUT", f"{base}/lab", {"vcCapacity": 25, "vcMaxCapacity": 50})
        call("GET", base)
        call("GET", f"{base}/lab")
        call("PUT", f"{base}/lab/status", {"vcStatus": "stopped"})
        call("DELETE", f"{base}/lab")


def call_storage_and_node_routes(call: SuccessfulCalls) -> None:
    name = call("GET", "/api/v2/storages").json()["storages"][0]["name"]
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
        "/api/v2/audit",
        "/api/v2/settings",
        "/alert-manager/api/v1/alerts",
        "/api/v2/kubernetes/nodes",
        "/api/v2/kubernetes/pods",
        "/api/v1/kubernetes/nodes",
        "/api/v1/kubernetes/pods",
    ):
        call("GET", path)
    call("POST", "/api/v2/storage/configs", {"names": [name]})
    call("POST", "/api/v2/storage/servers", {"names": [name]})
    for where, body in (
        ("/api/v2/storage/server", {"spn": "nas", "type": "nfs", "data": {"address": "x", "rootPath": "/"}}),
        ("/api/v2/storage/config", {"name": "team", "servers": ["nas"]}),
    ):
        key = next(iter(body))
        call("POST", where, body)
        call("PUT", where, body)
        call("DELETE", where, {key: body[key]})
        call("POST", where, body)
        call("DELETE", f"{where}/{body[key]}")


def call_paddlecloud_routes(call: SuccessfulCalls) -> None:
    for users in ("users", "user"):
        assert call("POST", f"/api/v2/{users}/alice/certificates").json()["certificate"]
        call("DELETE", f"/api/v2/{users}/alice/certificates")

    def succeed(method: str, path: str, body: Any = None) -> Any:
        reply = call(method, path, body, user="alice").json()
        assert reply.get("code", 200) == 200, f"{method} {path}: {reply}"
        return reply

    call("POST", "/api-token-auth/", {"username": "alice", "password": PASSWORD}, token=None)
    package = put_package(call.cluster, "paddle")
    fields = {"name": "paddle", "job_package": package, "pservers": 1, "memory": "64Mi", "psmemory": "64Mi"}
    named = succeed("POST", "/v2/submit", {**fields, "entry": "true"})["name"]
    succeed("POST", "/v1/submit", {**fields, "topology": "train.py"})
    for path in ("token2user", "pservers", "workers", f"workers?jobname={named}", "quota"):
        succeed("GET", f"/api/v1/{path}")
    succeed("GET", f"/api/v1/logs?jobname={named}&n=5")
    succeed("DELETE", "/api/v1/jobs", {"jobname": named, "rm": True})
    named = succeed("POST", "/api/v1/trainingjobs", {**fields, "entry": "true"})["name"]
    assert named in [job["name"] for job in succeed("GET", "/api/v1/trainingjobs")["msg"]]
    succeed("DELETE", "/api/v1/trainingjobs", {"jobname": named, "rm": True})
    home = "/pfs/dc/home/alice"
    for body in (
        {"method": "mkdir", "path": [f"{home}/paddle"]},
        {"method": "touch", "path": f"{home}/paddle/file", "filesize": 3},
    ):
        assert succeed("POST", "/api/v1/pfs/files", body)["err"] == ""
    assert succeed("GET", f"/api/v1/pfs/files?method=ls&r=true&arg={home}/paddle")["results"]
    assert succeed("GET", f"/api/v1/pfs/files?method=stat&path={home}/paddle/file")["results"]
    chunk = f"path={home}/paddle/file&offset=0&chunksize="
    assert succeed("GET", f"/api/v1/pfs/chunks?method=GetChunkMeta&{chunk}4096")["results"]["len"] == 3
    client = go_client_of(call.cluster, "alice", datacenter="dc")
    part = client.chunk_body(f"{home}/paddle/file", 0, b"abc")
    sent = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    assert call("POST", "/api/v1/pfs/storage/chunks", part, user="alice", headers=sent).json()["err"] == ""
    assert b"abc" in call("GET", f"/api/v1/pfs/storage/chunks?{chunk}3", user="alice").body
    removed = {"method": "rm", "path": [f"{home}/paddle/file"]}
    assert succeed("DELETE", "/api/v1/pfs/files", removed)["err"] == ""
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nabc\r\n--x--\r\n'
    sent = {"Content-Type": "multipart/form-data; boundary=x"}
    path = f"{home}/paddle/whole"
    assert call("POST", f"/api/v1/file?path={path}", form, user="alice", headers=sent).json()["msg"] == ""
    assert call("GET", f"/api/v1/file?path={path}", user="alice").body == b"abc"
    assert succeed("GET", f"/api/v1/filelist?path={home}/paddle")["items"] == ["whole"]
    url = succeed("POST", "/api/v1/publish", {"path": path})["url"]
    assert succeed("GET", "/api/v1/publish")["urls"] == [url]
    assert call("GET", url[url.index("/filepub") :], token=None).body == b"abc"
    registry = {"name": "hub", "username": "u", "password": "p", "server": "s"}
    succeed("POST", "/api/v1/registry", registry)
    assert succeed("GET", "/api/v1/registry")["msg"]["items"]
    succeed("DELETE", "/api/v1/registry", {"name": "hub"})
