"""Rate limits, login throttle and size limits of requests."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import time
from collections.abc import Callable

import pytest

from paicluster.api.middleware.rate_limits import RateWindow
from paiprotocol.errors import TooManyRequests
from support.server_fixture import job
from support.team_cluster import PASSWORD, TeamCluster

NewTeam = Callable[..., TeamCluster]
LOGIN = "/api/v2/authn/basic/login"


def test_openpais_three_rate_limits(new_team: NewTeam) -> None:
    cluster = new_team("limits: {requests-per-minute: 40, lists-per-minute: 3, submissions-per-hour: 2}\n")
    bob = cluster.tokens["bob"]
    # Listings and submissions are counted per user.
    for _ in range(3):
        assert cluster.get("/api/v2/jobs?limit=1").status == 200
    for path in ("/api/v2/jobs", "/api/v1/jobs", "/rest-server/api/v2/jobs"):
        refused = cluster.get(path)
        assert refused.status == 429
        assert refused.json()["message"] == "Too many requests, please try again later."
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["x-ratelimit-limit"] == "3"
    assert cluster.get("/api/v2/jobs?limit=1", token=bob).status == 200
    assert [cluster.submit(job(f"rate-{n}", "true")).status for n in range(3)] == [202, 202, 429]
    assert cluster.submit(job("rate-0", "true"), token=bob).status == 202
    # All requests are counted per address; another address is not affected.
    seen = [cluster.get("/api/v2/info", token=None).status for _ in range(40)]
    assert set(seen) == {200, 429}
    assert _status_from("127.0.0.2", cluster) == 200
    cluster.terminate()


def test_strangers_do_not_use_up_the_requests_of_users(new_team: NewTeam) -> None:
    """They share the address: of a proxy, or of all tasks on one machine."""
    cluster = new_team("limits: {requests-per-minute: 30}\n")

    def statuses(token: str | None, count: int) -> set[int]:
        return {cluster.get("/api/v2/info", token=token).status for _ in range(count)}

    assert statuses(None, 40) == {200, 429}
    # An invalid token is none.
    assert statuses("invalid", 1) == statuses("a.b.c", 1) == {429}
    assert statuses(cluster.tokens["alice"], 20) == {200}
    # Nor do users that of others.
    assert statuses(cluster.tokens["alice"], 20) == {200, 429}
    assert statuses(cluster.tokens["bob"], 20) == {200}


def _status_from(address: str, cluster: TeamCluster) -> int:
    with socket.create_connection(cluster.address, 10, (address, 0)) as peer:
        peer.sendall(b"GET /api/v2/info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return int(peer.recv(65536).split()[1])


def test_rate_window_restarts_after_its_period(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    window = RateWindow(2, 60)
    window.take("alice")
    window.take("alice")
    window.take("bob")
    with pytest.raises(TooManyRequests) as refused:
        window.take("alice")
    assert 0 < refused.value.retry_after_s <= 60
    assert window.retry_after_s("alice") > 0
    assert window.retry_after_s("bob") == 0
    now[0] += 60
    window.take("alice")


def test_failed_logins_are_limited_by_account_and_address(new_team: NewTeam) -> None:
    cluster = new_team("authentication: {failed-logins-per-account: 3, failed-logins-per-address: 6}\n")

    def log_in(user: str, password: str) -> int:
        return cluster.ask("POST", LOGIN, {"username": user, "password": password}, token=None).status

    assert [log_in("alice", "wrong one") for _ in range(3)] == [400, 400, 400]
    refused = cluster.ask("POST", "/api/v1/token", {"username": "alice", "password": PASSWORD}, token=None)
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert "failed" in refused.json()["message"]
    # Other users are not affected, and successful logins do not count.
    assert [log_in("bob", PASSWORD) for _ in range(3)] == [200, 200, 200]
    # Unknown user names count as well.
    assert [log_in(f"unknown-{n}", "whatever") for n in range(3)] == [400, 400, 400]
    assert log_in("bob", PASSWORD) == 429
    # Existing sessions stay valid.
    assert cluster.get("/api/v2/jobs?limit=1").status == 200


def test_wrong_passwords_from_elsewhere_keep_no_user_out(new_team: NewTeam) -> None:
    cluster = new_team("authentication: {failed-logins-per-account: 3, failed-logins-per-address: null}\n")

    def log_in(password: str, address: str) -> int:
        connection = http.client.HTTPConnection(*cluster.address, 90, source_address=(address, 0))
        connection.request("POST", LOGIN, json.dumps({"username": "alice", "password": password}))
        status = connection.getresponse().status
        connection.close()
        return status

    assert [log_in("wrong one", "127.0.0.2") for _ in range(4)] == [400, 400, 400, 429]
    assert log_in(PASSWORD, "127.0.0.2") == 429
    assert log_in(PASSWORD, "127.0.0.1") == 200


def test_wrong_old_passwords_count_as_failed_logins(new_team: NewTeam) -> None:
    cluster = new_team("authentication: {failed-logins-per-account: 3}\n")
    me = {"username": "alice", "newPassword": "another password", "oldPassword": "wrong one"}
    wrong = {"oldPassword": "wrong one", "newPassword": "another password"}
    for path, body in (
        ("/api/v2/users/alice/password", wrong),
        ("/api/v2/users/me", {"patch": True, "data": me}),
        ("/api/v2/user/alice/password", {"newPassword": "another password"}),
    ):
        refused = cluster.ask("PUT", path, body)
        assert (refused.status, refused.json()["message"]) == (403, "Pls input the correct password.")
    right = {"oldPassword": PASSWORD, "newPassword": "another password"}
    refused = cluster.ask("PUT", "/api/v2/users/alice/password", right)
    assert (refused.status, int(refused.headers["retry-after"]) >= 1) == (429, True)
    assert cluster.ask("POST", LOGIN, {"username": "alice", "password": PASSWORD}, token=None).status == 429
    # Other users are not affected, nor is an administrator, who needs no old password.
    bob = cluster.tokens["bob"]
    assert cluster.ask("PUT", "/api/v2/users/bob/password", right, token=bob).status == 201
    by_admin = cluster.ask("PUT", "/api/v2/users/alice/password", right, token=cluster.tokens["admin"])
    assert by_admin.status == 201


def test_too_large_body_is_rejected_before_it_is_read(new_team: NewTeam) -> None:
    cluster = new_team("limits: {body-mb: 1}\n")
    large = "x" * (2 << 20)
    for method, path, limit in (
        ("POST", "/api/v2/jobs", "1 MB"),
        ("POST", "/api/v1/jobs", "1 MB"),
        ("POST", LOGIN, "64 KB"),
        ("PUT", "/api/v2/jobs/alice~x/executionType", "1 MB"),
    ):
        refused = cluster.ask(method, path, large)
        assert refused.status == 413, path
        assert refused.json()["message"] == f"The request's body is larger than {limit}."
    # Also without a Content-Length.
    with socket.create_connection(cluster.address, 10) as peer:
        head = f"POST /api/v2/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {cluster.token}\r\n"
        peer.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(17):
            peer.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        assert b" 413 " in peer.recv(65536)


def test_endless_request_head_is_rejected(team: TeamCluster) -> None:
    with socket.create_connection(team.address, 10) as peer:
        peer.sendall(b"GET /api/v2/info HTTP/1.1\r\nHost: x\r\n")
        answer = b""
        try:
            for number in range(200):
                peer.sendall(b"X-%d: %b\r\n" % (number, b"a" * 8000))
            answer = peer.recv(65536)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert not answer or b" 431 " in answer
    assert team.get("/healthz", token=None).status == 200


def test_sources_have_their_own_size_limit(new_team: NewTeam) -> None:
    cluster = new_team("limits: {body-mb: 1, sources-mb: 2}\n")
    small, large = b"s" * (2 << 20), b"x" * ((2 << 20) + 1)
    for sent, status in ((small, 201), (large, 413)):
        reply = cluster.ask("PUT", f"/api/v2/sources/{hashlib.sha256(sent).hexdigest()}", sent)
        assert reply.status == status, reply.text
    assert reply.json()["message"] == "Sources may have 2 MB at most."
    assert len(list((cluster.home / "sources").iterdir())) == 1


@pytest.mark.parametrize("trusted", [True, False])
def test_forwarded_address_counts_only_from_trusted_proxies(new_team: NewTeam, trusted: bool) -> None:
    proxies = "listen: {trusted-proxies: [127.0.0.1]}\n" if trusted else ""
    cluster = new_team(proxies + "authentication: {failed-logins-per-address: 2}\n")

    def log_in(address: str) -> int:
        body = {"username": f"unknown-{address}", "password": "wrong one"}
        return cluster.ask("POST", LOGIN, body, {"X-Forwarded-For": address}, token=None).status

    assert [log_in("203.0.113.5"), log_in("203.0.113.5"), log_in("203.0.113.5")] == [400, 400, 429]
    assert log_in("203.0.113.6") == (400 if trusted else 429)
    cluster.terminate()  # writes the number of refusals
    lines = [json.loads(line) for line in (cluster.home / "audit.log").read_text().splitlines()]
    (refused,) = [line for line in lines if "refused" in line]
    expected = {"203.0.113.5": 3, "203.0.113.6": 1} if trusted else {"127.0.0.1": 4}
    assert refused["addresses"] == expected
