"""Requests to a cluster: retries, tokens, errors with a hint."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client.models import number
from openpaisdk.client.transport import CONNECTION_LOST, MAX_ATTEMPTS
from openpaisdk.connect import open_embedded
from openpaisdk.embedded.handshake import Handshake
from paiprotocol.errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    NotFound,
    PaiError,
    ProtocolError,
    Unauthorized,
    Unavailable,
)
from pairuntime.transport.http1 import Connection, HttpProtocolError
from support.http_peer import Request, reply
from support.ports import free_port


def cluster(uri: str, **more) -> ClusterClient:
    """A client that retries without a delay."""
    client = ClusterClient("test", Endpoint(uri, "me", "secret", **more))
    client.transport.retry_delays_s = (0.001,)
    return client


def test_requests_have_the_token_and_the_rest_server_prefix(peer) -> None:
    p = peer(lambda r: reply([]))
    cluster(p.uri).jobs(user="me", state="RUNNING")
    assert p.requests[0].headers["authorization"] == "Bearer secret"
    assert p.requests[0].target == "/rest-server/api/v2/jobs?username=me&state=RUNNING"


def test_rest_server_prefix_is_not_repeated(peer) -> None:
    p = peer(lambda r: reply([]))
    cluster(p.uri + "/rest-server").jobs()
    cluster(p.uri, rest_path="").jobs()
    assert [r.path for r in p.requests] == ["/rest-server/api/v2/jobs", "/api/v2/jobs"]


def test_page_with_total_count_is_parsed(peer) -> None:
    p = peer(lambda r: reply({"totalCount": 1, "data": [{"name": "a", "state": "RUNNING"}]}))
    assert [j.name for j in cluster(p.uri).jobs()] == ["a"]


def test_lost_response_is_retried_with_the_same_idempotency_key(peer) -> None:
    keys = []

    def respond(r):
        keys.append(r.headers["idempotency-key"])
        return None if len(keys) < 3 else reply({"status": 202}, 202)

    p = peer(respond)
    cluster(p.uri).submit("{}", "one-key")
    assert keys == ["one-key"] * 3
    assert p.requests[0].headers["content-type"] == "text/yaml"


def test_starting_cluster_is_retried(peer) -> None:
    responses = [reply({"code": "X", "message": "starting"}, 503), reply([])]
    assert cluster(peer(lambda r: responses.pop(0)).uri).jobs() == []


def test_unavailable_cluster_reports_the_reason(peer) -> None:
    p = peer(lambda r: reply({"code": "UnavailableError", "message": "The disk is full."}, 503))
    with pytest.raises(PaiError, match="The disk is full") as caught:
        cluster(p.uri).jobs()
    assert caught.value.code == "UnavailableError"
    assert len(p.requests) == MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "UnauthorizedUserError", Unauthorized),
        (403, "ForbiddenUserError", Forbidden),
        (404, "NoVirtualClusterError", NotFound),
        (409, "ConflictJobError", Conflict),
        (400, "InvalidProtocolError", ProtocolError),
        (500, "UnknownError", PaiError),
    ],
)
def test_error_response_becomes_the_same_error(peer, status: int, code: str, kind: type) -> None:
    p = peer(lambda r: reply({"code": code, "message": "Because."}, status))
    with pytest.raises(kind, match="Because") as caught:
        cluster(p.uri).virtual_clusters()
    assert caught.value.code == code and type(caught.value) is kind


def test_error_without_an_end_is_read_in_part(peer) -> None:
    def endless(r):
        yield b"HTTP/1.1 503 Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n"
        for _ in range(64):
            yield b"10000\r\n" + bytes(1 << 16) + b"\r\n"
        yield b"the connection must be closed by now"

    p = peer(lambda r: endless(r) if r.path.endswith("/jobs") else reply([]))
    client = cluster(p.uri)
    with pytest.raises(Unavailable):
        client.jobs()
    assert client.transport.request("GET", "/next").read() == b"[]"


def test_response_that_breaks_off_is_requested_again(peer) -> None:
    """A connection may also be lost within the body: between a proxy and a client, or with the server."""
    short = reply([])[:-1]

    def broken(r):
        yield short if len(p.requests) % 2 else reply([])
        if len(p.requests) % 2:
            raise ConnectionError

    p = peer(broken)
    client = cluster(p.uri)
    assert client.jobs() == []
    client.submit("{}", "one-key")
    assert [r.method for r in p.requests] == ["GET", "GET", "POST", "POST"]
    assert [r.headers.get("idempotency-key") for r in p.requests[2:]] == ["one-key"] * 2


def test_response_that_always_breaks_off_is_a_failed_connection(peer) -> None:
    def broken(r):
        yield reply([])[:-1]
        raise ConnectionError

    p = peer(broken)
    with pytest.raises(ConnectionFailed, match="in the middle of a response"):
        cluster(p.uri).jobs()
    assert len(p.requests) == MAX_ATTEMPTS


def test_hint_of_the_cluster_is_kept(peer) -> None:
    p = peer(lambda r: reply({"code": "ForbiddenUserError", "message": "No.", "hint": "Ask again."}, 403))
    with pytest.raises(Forbidden) as caught:
        cluster(p.uri).jobs()
    assert caught.value.hint == "Ask again."


def test_unknown_job_error_names_the_job(peer) -> None:
    p = peer(lambda r: reply({"code": "NoJobError", "message": "Job me~x is not found."}, 404))
    with pytest.raises(NotFound, match="There is no job 'x' on the cluster test"):
        cluster(p.uri).job("x")


def test_not_found_without_a_code_is_a_missing_job(peer) -> None:
    p = peer(
        lambda r: reply(
            [] if r.path.endswith("/jobs") else {"message": "No."}, 404 if r.path.endswith("x") else 200
        )
    )
    with pytest.raises(NotFound, match="There is no job 'x' on the cluster test") as caught:
        cluster(p.uri).job("x")
    assert caught.value.code == "NoJobError"


def test_code_of_the_response_is_kept_and_defaults_are_general(peer) -> None:
    p = peer(lambda r: reply({"code": "NoUserError", "message": "No."}, 404))
    with pytest.raises(NotFound) as caught:
        cluster(p.uri).job("x")
    assert caught.value.code == "NoUserError"
    assert (NotFound("").code, Conflict("").code) == ("NotFoundError", "ConflictError")


def test_job_of_another_user_is_requested_by_full_name(peer) -> None:
    p = peer(lambda r: reply({"name": "j", "jobStatus": {}, "taskRoles": {}}))
    c = cluster(p.uri)
    c.job("j")
    c.job("j", "you")
    c.job("she~j")
    assert [r.path.rsplit("/", 1)[1] for r in p.requests] == ["me~j", "you~j", "she~j"]


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1]", b"null", b""])
def test_server_that_is_not_a_cluster_is_detected(peer, body: bytes) -> None:
    p = peer(lambda r: reply(body))
    with pytest.raises(ConnectionFailed, match="does not respond like an OpenPAI cluster"):
        cluster(p.uri).info()


def test_connection_refused_is_a_one_line_error() -> None:
    port = free_port()
    with pytest.raises(
        ConnectionFailed, match=rf"test at http://127\.0\.0\.1:{port} does not respond: nothing listens"
    ):
        cluster(f"http://127.0.0.1:{port}").jobs()


def test_unknown_host_is_a_one_line_error() -> None:
    with pytest.raises(ConnectionFailed, match="its host name cannot be resolved"):
        cluster("http://no-such-host.invalid").jobs()


def test_moved_cluster_is_found_again(peer) -> None:
    p = peer(lambda r: reply([]))
    gone = f"http://127.0.0.1:{free_port()}"
    reasons = []

    def renew(reason: str, failed: Endpoint) -> Endpoint:
        reasons.append(reason)
        return Endpoint(p.uri, "me", "new")

    c = ClusterClient("local", Endpoint(gone, "me", "old"), renew=renew)
    assert c.jobs() == []
    assert reasons == [CONNECTION_LOST] and p.requests[0].headers["authorization"] == "Bearer new"


def test_late_request_does_not_discard_the_new_endpoint(peer, monkeypatch) -> None:
    p = peer(lambda r: reply([]))
    gone = f"http://127.0.0.1:{free_port()}"
    failed_endpoints = []

    def ready(*, notify: object = None, failed: str = "") -> Handshake:
        failed_endpoints.append(failed)
        return Handshake(p.uri if failed else gone, 1, "", 0, "")

    monkeypatch.setattr(import_module("openpaisdk.embedded.ensure_running"), "ensure_running", ready)
    first = open_embedded("local")
    second = ClusterClient("local", first.transport.endpoint, renew=first.transport.renew)
    assert first.jobs() == second.jobs() == []
    assert failed_endpoints == ["", gone, gone]


def test_rejected_token_is_renewed(peer) -> None:
    def respond(r):
        good = r.headers["authorization"] == "Bearer new"
        return reply([]) if good else reply({"code": "UnauthorizedUserError", "message": "no"}, 401)

    p = peer(respond)
    c = ClusterClient(
        "local", Endpoint(p.uri, "me", "old"), renew=lambda why, failed: Endpoint(p.uri, "me", "new")
    )
    assert c.jobs() == []


def test_sources_are_uploaded_only_if_the_cluster_has_a_source_store(peer) -> None:
    p = peer(
        lambda r: (
            reply(b"", 404) if r.method == "HEAD" else reply({"code": "NoApiError", "message": "no"}, 404)
        )
    )
    c = cluster(p.uri)
    assert not c.has_sources("0" * 64)
    with pytest.raises(PaiError, match="has no source store"):
        c.put_sources("0" * 64, b"tar")


def test_loopback_bypasses_the_proxy(peer, monkeypatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    p = peer(lambda r: reply([]))
    assert cluster(p.uri).jobs() == []


def test_other_hosts_use_the_proxy_of_the_environment(peer, monkeypatch) -> None:
    p = peer(lambda r: reply([]))
    monkeypatch.setenv("http_proxy", f"http://u:p%40@127.0.0.1:{p.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert cluster("http://pai.example.org").jobs() == []
    assert p.requests[0].target == "http://pai.example.org/rest-server/api/v2/jobs"
    assert p.requests[0].headers["proxy-authorization"] == "Basic dTpwQA=="


def test_no_proxy_is_honoured(monkeypatch) -> None:
    from openpaisdk.client.address import parse_uri
    from openpaisdk.client.tls_and_proxies import proxy_for

    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "localhost, .internal.org,host.example")
    assert proxy_for(parse_uri("https://pai.example.org")) == "http://proxy:3128"
    assert proxy_for(parse_uri("https://a.internal.org")) == ""
    assert proxy_for(parse_uri("https://host.example")) == ""
    assert proxy_for(parse_uri("https://127.0.0.1")) == ""
    monkeypatch.setenv("no_proxy", "*")
    assert proxy_for(parse_uri("https://pai.example.org")) == ""


def endless(first: bytes, rest: bytes) -> Callable[[Request], Iterator[bytes]]:
    def respond(_: Request) -> Iterator[bytes]:
        yield first
        while True:
            yield rest

    return respond


_CHUNKED = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "rest"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (_CHUNKED + b"0\r\n", b"Trailer: x\r\n"),
        (b"HTTP/1.1 200 X\r\nX: ", b"x" * 60000),
        (_CHUNKED, b"f" * 60000),
        (b"HTTP/1.1 200 X\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b" "),
    ],
    ids=["announcements", "trailers", "header", "chunk size", "length"],
)
def test_response_that_never_ends_is_a_failed_connection(peer, first: bytes, rest: bytes) -> None:
    with pytest.raises(ConnectionFailed):
        cluster(peer(endless(first, rest)).uri).info()


def test_body_that_never_ends_is_not_kept(peer) -> None:
    connection = Connection("127.0.0.1", peer(endless(_CHUNKED, b"100\r\n" + b" " * 256 + b"\r\n")).port, 10)
    response = connection.request("GET", "/", {}, None, 10)
    with pytest.raises(HttpProtocolError, match="does not end"):
        response.buffer_body(max_bytes=1 << 20)
    connection.close()
    response = connection.request("GET", "/", {}, None, 10)
    with pytest.raises(TimeoutError):
        response.buffer_body(timeout_s=0.1)
    connection.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_an_error_and_gets_no_token(peer, status: int) -> None:
    other = peer(lambda _: reply({}))
    first = peer(lambda _: reply(b"", status, f"Location: {other.uri}/api/v2/jobs"))
    with pytest.raises(ConnectionFailed, match=f"redirects to {other.uri}, and no token is sent there"):
        cluster(first.uri).jobs()
    assert other.requests == []


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"version": ' + b"9" * 5000 + b"}", b"\xff\xfe"])
def test_unreadable_json_is_not_that_of_a_cluster(peer, body: bytes) -> None:
    with pytest.raises(ConnectionFailed, match="does not respond like an OpenPAI cluster"):
        cluster(peer(lambda _: reply(body)).uri).info()


def test_infinite_number_is_none() -> None:
    raw: dict[str, object] = {"huge": json.loads("1e999"), "none": json.loads("NaN"), "fine": 5.0}
    assert [number(raw, key) for key in raw] == [None, None, 5]
