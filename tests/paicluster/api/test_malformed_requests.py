"""Fuzzing: every malformed request gets an error message, and the server stays up."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.server_fixture import job
from support.team_cluster import TeamCluster


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nowhere"),
        ("GET", "/rest-server"),
        ("GET", "/rest-serverapi/v2/info"),
        ("GET", "/api/v2/nothing"),
        ("DELETE", "/api/v2/jobs"),
        ("POST", "/api/v2/jobs/alice~x"),
        ("PATCH", "/api/v2/jobs"),
        ("GET", "/rest-server/api/v3/jobs"),
        ("GET", "/api/v2/jobs/a~b/attempts/1/taskRoles"),
        ("GET", "/api/v2/jobs/a~b/attempts/" + "9" * 5000),
    ],
)
def test_unknown_path_is_a_no_api_error(cluster: TeamCluster, method: str, path: str) -> None:
    reply = cluster.ask(method, path)
    assert reply.status == 404
    error = reply.json()
    assert error["code"] in ("NoApiError", "NoJobError")
    if error["code"] == "NoApiError":
        assert error["message"].startswith("API /")
        assert error["message"].endswith(" is not found.")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/webhdfs/v1/user/alice", "DELETE, GET, HEAD, POST, PUT"),
        ("PATCH", "/rest-server/webhdfs/v1/é".replace("é", "%C3%A9"), "DELETE, GET, HEAD, POST, PUT"),
        ("POST", "/healthz", "GET, HEAD"),
        ("DELETE", "/metrics", "GET, HEAD"),
        ("PUT", "/openapi.json", "GET, HEAD"),
        ("DELETE", "/job-detail.html", "GET, HEAD"),
        ("GET", "/api/v2/sources/" + "0" * 64, "HEAD, PUT"),
        ("POST", "/api/v2/jobs/alice~x/follow", "GET, HEAD"),
    ],
)
def test_other_method_of_a_route_that_openpai_does_not_have(
    cluster: TeamCluster, method: str, path: str, allowed: str
) -> None:
    reply = cluster.ask(method, path)
    assert (reply.status, reply.headers["allow"]) == (405, allowed)
    error = reply.json()
    assert error["code"] == "MethodNotAllowedError"
    assert error["message"].endswith(f" takes {allowed}.")


ODD_TEXT = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["\0", "..", "%", "'", '"', "²", "9" * 25, "-1", "1e9", "NaN", "null", "true", "a" * 2000, "\u202e"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=12,
)
PATHS = [
    "/api/v2/jobs?username={}&state={}",
    "/api/v2/jobs?limit={}&offset={}",
    "/api/v2/jobs?order={}&keyword={}",
    "/api/v2/jobs?jobPriority={}&tagsContain={}",
    "/api/v2/jobs/{}",
    "/api/v2/jobs/{}/config",
    "/api/v2/jobs/alice~fuzzed/follow?follow=false&role={}&index={}",
    "/api/v2/jobs/alice~fuzzed/follow?follow=false&from={}&tail={}",
    "/api/v2/jobs/alice~fuzzed/events?type={}",
    "/api/v2/jobs/alice~fuzzed/attempts/{}",
    "/api/v2/jobs/alice~fuzzed/attempts/{}/taskRoles/{}/taskIndex/0/attempts",
    "/log-manager/x/api/v1/logs/{}?pod-uid={}",
    "/log-manager/x/api/v1/logs/all?pod-uid={}&token={}",
    "/api/v2/virtual-clusters/{}",
    "/api/v2/tokens/{}",
    "/api/v2/sources/{}",
    "/{}/{}",
]


@pytest.fixture(scope="module")
def fuzzed(cluster: TeamCluster) -> TeamCluster:
    cluster.run(job("fuzzed", "echo here"))
    return cluster


def check_error_body(body: bytes) -> None:
    error = json.loads(body)
    assert set(error) <= {"code", "message", "hint"}
    assert error["message"].strip()
    assert "Traceback (most" not in error["message"]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PATHS), a=ODD_TEXT, b=ODD_TEXT)
def test_no_path_breaks_a_route(fuzzed: TeamCluster, path: str, a: str, b: str) -> None:
    from urllib.parse import quote

    for method in ("GET", "DELETE") if "tokens" in path else ("GET",):
        reply = fuzzed.ask(method, path.format(quote(a, safe=""), quote(b, safe="")))
        assert reply.status < 500, reply.text
        if reply.status >= 400:
            check_error_body(reply.body)


ROUTES = [
    ("POST", "/api/v2/jobs"),
    ("POST", "/api/v2/authn/basic/login"),
    ("PUT", "/api/v2/jobs/alice~fuzzed/executionType"),
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(route=st.sampled_from(ROUTES), body=JSON.map(json.dumps) | ODD_TEXT | st.binary(max_size=60))
def test_no_body_breaks_a_route(fuzzed: TeamCluster, route: tuple[str, str], body: Any) -> None:
    reply = fuzzed.ask(*route, body)
    assert 400 <= reply.status < 500, (reply.status, reply.text)
    check_error_body(reply.body)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=JSON)
def test_no_changed_value_of_a_valid_job_breaks_submission(
    fuzzed: TeamCluster, data: st.DataObject, value: Any
) -> None:
    """A valid job with one value replaced: accepted or rejected, never an internal error."""
    spec: dict[str, Any] = job("f", "true", cpu=4096, ports={"web": 1}, completion={"minFailedInstances": 1})
    spec.update(secrets={"a": "b"}, parameters={"p": 1}, extras={"gangAllocation": True}, jobRetryCount=0)
    places: list[tuple[dict[str, Any], str]] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            places.extend((node, key) for key in node)
            for inner in node.values():
                walk(inner)

    walk(spec)
    node, key = data.draw(st.sampled_from(places))
    node[key] = value
    if node is not spec or key != "name":
        spec["name"] = "f-" + str(abs(hash(json.dumps(spec, sort_keys=True))))
    reply = fuzzed.submit(spec)
    assert reply.status in (202, 400, 409), (reply.status, reply.text)
    if reply.status == 202:
        reply = fuzzed.get(fuzzed.path(spec["name"]))
        assert reply.status == 200
        assert fuzzed.get(fuzzed.path(spec["name"], "/config")).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /api/v2/info HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/v2/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /api/v2/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\nshort",
    ],
)
def test_bytes_that_are_no_request_are_harmless(cluster: TeamCluster, raw: bytes) -> None:
    with socket.create_connection(cluster.address, 10) as peer:
        peer.sendall(raw)
        peer.shutdown(socket.SHUT_WR)
        response = b""
        try:
            while part := peer.recv(65536):
                response += part
        except ConnectionResetError:
            pass
    assert b"Traceback" not in response
    assert b" 500 " not in response
    assert cluster.get("/healthz", token=None).status == 200
    assert "Traceback" not in cluster.log.read_text()


def test_server_log_has_no_traceback(cluster: TeamCluster) -> None:
    assert "Traceback" not in cluster.log.read_text()
