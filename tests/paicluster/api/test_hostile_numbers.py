"""Numbers, names and nesting that a client chooses: a 4xx with a sentence, never an unexpected error."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

import pytest

from support.server_fixture import Reply, job
from support.team_cluster import TeamCluster

DEEP = "[" * 200_000
DEEP_MAPPINGS = '{"a":' * 50_000
PATCH = "application/vnd.openpai.sources-patch"
TRANSFER = "/api/v2/transfer"
HUGE = (2**31, 2**43, 2**53, 2**63 - 1, 2**63, 10**30, 10**400)


def check_refused(reply: Reply, what: object) -> None:
    assert 400 <= reply.status < 500, (what, reply.status, reply.text[:200])
    body = reply.json()
    message = body.get("message") or body["RemoteException"]["message"]
    assert message and "Error:" not in message and "Traceback" not in message, (what, message)


@pytest.mark.parametrize(
    "body", [DEEP, DEEP_MAPPINGS, '{"value": ' + DEEP], ids=["lists", "mappings", "value"]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v2/jobs"),
        ("POST", "/api/v1/jobs"),
        ("PUT", "/api/v2/jobs/alice~x/executionType"),
        ("PUT", "/api/v2/jobs/alice~x/tag"),
        ("POST", "/api/v2/authn/basic/login"),
        ("POST", "/api/v2/tokens/application"),
        ("POST", f"{TRANSFER}/fetch"),
        ("POST", f"{TRANSFER}/remove"),
        ("POST", f"{TRANSFER}/uploads"),
        ("POST", "/prometheus/api/v1/query"),
    ],
)
def test_deep_json_is_refused(cluster: TeamCluster, method: str, path: str, body: str) -> None:
    if path.endswith(("login", "uploads", "query")):
        body = body[:60_000]
    reply = cluster.ask(method, path, body, {"Content-Type": "application/json"})
    assert 400 <= reply.status < 500, reply.text[:200]


def test_deep_extension_of_a_user_is_refused(cluster: TeamCluster) -> None:
    body = f'{{"data": {{"username": "alice", "extension": {DEEP}'
    reply = cluster.ask(
        "PUT", "/api/v2/users/me", body, {"Content-Type": "application/json"}, token=cluster.tokens["admin"]
    )
    check_refused(reply, "extension")


@pytest.mark.parametrize(
    "base",
    ["", "\0", "x" * 5000, "../../keys/tokens", "é" * 64, "0" * 64 + "\n", "A" * 64, "%ff", "0" * 63 + "/"],
)
def test_bad_base_of_a_patch_is_refused(cluster: TeamCluster, base: str) -> None:
    path = f"/api/v2/sources/{'1' * 64}?base={quote(base)}"
    check_refused(cluster.ask("PUT", path, "copy 0 1\n", {"Content-Type": PATCH}), base)


@pytest.mark.parametrize(
    "line", ["copy 999999999999999 1", "data 999999999999999", "copy 0 -1", "copy ² 1", "x"]
)
def test_bad_instruction_of_a_patch_is_refused(cluster: TeamCluster, line: str) -> None:
    content = b"\0" * 10_240
    digest = hashlib.sha256(content).hexdigest()
    connection = cluster.connect()
    headers = {"Authorization": f"Bearer {cluster.token}"}
    connection.request("PUT", f"/api/v2/sources/{digest}", content, headers)
    assert connection.getresponse().status in (200, 201)
    connection.close()
    path = f"/api/v2/sources/{'2' * 64}?base={digest}"
    check_refused(cluster.ask("PUT", path, f"{line}\n", {"Content-Type": PATCH}), line)


@pytest.mark.parametrize("number", [*HUGE, -(2**63), -(10**30)])
@pytest.mark.parametrize("parameter", ["modificationtime", "accesstime"])
def test_huge_time_of_a_file_is_refused_or_kept(cluster: TeamCluster, parameter: str, number: int) -> None:
    path = "/webhdfs/v1/user/alice/times"
    assert cluster.ask("PUT", f"{path}?op=CREATE&data=true&overwrite=true", "x").status == 201
    reply = cluster.ask("PUT", f"{path}?op=SETTIMES&{parameter}={number}")
    if reply.status != 200:
        check_refused(reply, number)
    status = cluster.get(f"{path}?op=GETFILESTATUS").json()["FileStatus"]
    if reply.status == 200 and parameter == "modificationtime":
        assert status["modificationTime"] == number


def begin_upload(cluster: TeamCluster, **more: Any) -> Reply:
    announced = {"path": "/user/alice/uploaded", "key": "k", "size": 0, **more}
    return cluster.ask("POST", f"{TRANSFER}/uploads", json.dumps(announced))


@pytest.mark.parametrize("number", [*HUGE, -(2**63), -(10**30)])
@pytest.mark.parametrize("field", ["size", "mtime", "mode", "partBytes"])
def test_huge_number_of_an_upload_is_refused_or_kept(cluster: TeamCluster, field: str, number: int) -> None:
    reply = begin_upload(cluster, **{field: number})
    # 507: there is no space for so many bytes.
    assert reply.status in (200, 507) or 400 <= reply.status < 500, (field, number, reply.text)
    if reply.status == 200:
        cluster.ask("DELETE", f"{TRANSFER}/uploads/{reply.json()['id']}")


@pytest.mark.parametrize("number", [*HUGE, -(2**63), -(10**30)])
@pytest.mark.parametrize("field", ["size", "mtime"])
def test_huge_number_at_the_end_of_an_upload_is_refused_or_kept(
    cluster: TeamCluster, field: str, number: int
) -> None:
    begun = begin_upload(cluster)
    assert begun.status == 200, begun.text
    end = {"size": 0, "mtime": 0, field: number}
    reply = cluster.ask("POST", f"{TRANSFER}/uploads/{begun.json()['id']}/finish", json.dumps(end))
    if reply.status != 200:
        check_refused(reply, (field, number))
    for listing in (f"{TRANSFER}/tree?path=/user/alice", "/webhdfs/v1/user/alice?op=LISTSTATUS"):
        assert cluster.get(listing).status == 200


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize(
    "path",
    [
        "/api/v2/jobs?limit={}",
        "/api/v2/jobs?offset={}",
        "/api/v2/jobs/alice~numbers/events?offset={}",
        "/api/v2/jobs/alice~numbers/follow?follow=false&tail={}",
        "/api/v2/jobs/alice~numbers/follow?follow=false&index={}",
        "/api/v2/jobs/alice~numbers/follow?follow=false&from={}.0:0",
        "/api/v2/jobs/alice~numbers/follow?follow=false&from=0.0:{}",
        "/api/v2/jobs/alice~numbers/attempts/{}",
        "/api/v2/tokens?offset={}",
        "/api/v2/tokens?limit={}",
        "/webhdfs/v1/user/alice/numbers?op=OPEN&offset={}",
        "/webhdfs/v1/user/alice/numbers?op=OPEN&length={}",
        "/webhdfs/v1/user/alice/numbers?op=OPEN&buffersize={}",
        "/webhdfs/v1/user/alice/numbers?op=GETFILEBLOCKLOCATIONS&offset={}&length={}",
        f"{TRANSFER}/file?path=/user/alice/numbers&offset={{}}",
        f"{TRANSFER}/file?path=/user/alice/numbers&length={{}}",
    ],
)
def test_huge_number_in_a_query_is_no_unexpected_error(cluster: TeamCluster, path: str, number: int) -> None:
    if cluster.get("/api/v2/jobs/alice~numbers").status == 404:
        cluster.run(job("numbers", "echo x"))
        cluster.ask("PUT", "/webhdfs/v1/user/alice/numbers?op=CREATE&data=true&overwrite=true", "x")
    reply = cluster.get(path.format(*[number] * path.count("{}")))
    assert reply.status < 500, (path, number, reply.text[:300])


@pytest.mark.parametrize("number", [*HUGE, -1, -(10**30)])
def test_huge_number_in_a_job_is_refused_or_pending(cluster: TeamCluster, name: str, number: int) -> None:
    for place in ("instances", "cpu", "memory_mb", "gpu"):
        reply = cluster.submit(job(f"{name}-{place}", "true", **{place: number}))
        assert reply.status == 202 or 400 <= reply.status < 500, (place, number, reply.text[:300])
        if reply.status == 202:
            cluster.stop(f"{name}-{place}")
    for extra in ({"timeLimit": number}, {"arrayLimit": number}):
        reply = cluster.submit({**job(f"{name}-x", "true"), "extras": {"openpaisdk": extra}})
        assert reply.status == 202 or 400 <= reply.status < 500, (extra, reply.text[:300])
        if reply.status == 202:
            cluster.stop(f"{name}-x")
            cluster.wait_over(f"{name}-x")
            break
