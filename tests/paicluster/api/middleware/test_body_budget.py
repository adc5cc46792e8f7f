"""Memory of request bodies: none before authentication, and a budget for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.api.middleware.body_budget import RESERVED_KEY, BodyBudget
from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.routes import ROUTES
from paicluster.config.sections import RequestLimits
from paicluster.config.settings import Settings
from paicluster.remote_storages.remote_changes import MAX_UPLOAD_MEMORY_BYTES, upload_memory_bytes
from paicluster.remote_storages.remote_tree import MAX_UPLOAD_BYTES
from paiprotocol.errors import Unavailable
from support.server_fixture import DEADLINE_S, eventually, job
from support.team_cluster import TeamCluster

MB = 1 << 20
MAX_GROWTH_BYTES = 64 * MB


def memory_bytes(cluster: TeamCluster) -> int:
    assert cluster.process is not None
    status = Path(f"/proc/{cluster.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) << 10


@contextlib.contextmanager
def sending(
    cluster: TeamCluster, method: str, path: str, announced: int, sent: int, token: str | None = None
) -> Iterator[socket.socket]:
    """A connection that announced a body and sent the beginning of it."""
    with socket.create_connection(cluster.address, timeout=DEADLINE_S) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {announced}\r\n"
        if token:
            head += f"Authorization: Bearer {token}\r\n"
        # A server that has answered may close the connection.
        with contextlib.suppress(ConnectionError):
            connection.sendall(head.encode() + b"\r\n" + b" " * sent)
        yield connection


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(12).split()[1])


ROUTES_WITH_BODY = sorted(
    {
        (method, re.sub(r"\{(\w+)(:\w+)?\}", lambda match: "1" if match[2] == ":count" else "x", route.path))
        for route in ROUTES
        for method in route.methods
        if method in ("POST", "PUT", "DELETE")
    }
)


def test_no_route_waits_for_the_body_of_a_stranger(cluster: TeamCluster) -> None:
    waiting = []
    for method, path in ROUTES_WITH_BODY:
        with sending(cluster, method, path, 8 * MB, 128 << 10) as connection:
            connection.settimeout(90)
            try:
                status = status_of(connection)
            except TimeoutError:
                waiting.append((method, path))
                continue
        # The banner and the description of a dialect to come take any method.
        assert (
            400 <= status < 500
            or (status, path) in {(200, "/api/v1"), (200, "/api/v2")}
            or (path == "/api/v2/info" and status == 200)
        ), (method, path, status)
    assert waiting == []


def test_bodies_of_strangers_take_no_memory(cluster: TeamCluster) -> None:
    before = memory_bytes(cluster)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(sending(cluster, "POST", "/api/v1/jobs", 8 * MB, 2 * MB))
            assert status_of(connection) == 401
        assert memory_bytes(cluster) - before < MAX_GROWTH_BYTES


def test_one_user_cannot_fill_the_memory_with_unfinished_bodies(cluster: TeamCluster) -> None:
    # A first large body: memory for the code that it needs does not count.
    assert cluster.submit("x" * (2 * MB)).status == 400
    before = memory_bytes(cluster)
    alice, bob = cluster.tokens["alice"], cluster.tokens["bob"]
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(
                sending(cluster, "POST", f"/api/v{1 + number % 2}/jobs", 8 * MB, 6 * MB, alice)
            )
            for number in range(40)
        ]
        growth = memory_bytes(cluster) - before
        refused = []
        for connection in connections:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                refused.append(connection.recv(4096).decode())
        # Ten fit into the half of the budget that one user gets; the last ones may not be answered yet.
        assert len(refused) >= 25
        assert growth < 2 * MAX_GROWTH_BYTES
        for response in refused:
            assert response.startswith("HTTP/1.1 503") and "retry-after: 1" in response.lower()
            assert "too many large requests of this user" in response
        # Another user has a part of the budget that no other user can take.
        accepted = cluster.submit(job("budget-of-bob", "true", description="x" * (MB // 2)), token=bob)
        assert accepted.status == 202, accepted.text
    # What the closed connections held is free again.
    large = "x" * (7 * MB)
    eventually(lambda: cluster.submit(large).status == 400, "the release of the memory")


def test_announced_length_beyond_any_number_is_too_large(cluster: TeamCluster) -> None:
    with sending(cluster, "POST", "/api/v2/jobs", 10**18, 0, cluster.token) as connection:
        assert status_of(connection) == 413


def test_budget_is_of_all_users_and_of_one() -> None:
    budget = BodyBudget(10 * MB, 1 * MB)
    scopes = [{}, {}, {}]
    budget.reserve(scopes[0], "alice", 5 * MB)
    with pytest.raises(Unavailable, match="of this user"):
        budget.reserve(scopes[1], "alice", 1)
    budget.reserve(scopes[1], "bob", 4 * MB)
    with pytest.raises(Unavailable, match="of all users"):
        budget.reserve(scopes[2], "carol", 2 * MB)
    budget.release(scopes[0])
    budget.reserve(scopes[2], "carol", 2 * MB)
    for scope in scopes:
        budget.release(scope)
    assert budget.in_use == 0 and not any(RESERVED_KEY in scope for scope in scopes)


def test_a_body_of_the_largest_size_always_fits() -> None:
    budget = BodyBudget(1 * MB, 8 * MB)
    budget.reserve({}, "alice", 8 * MB)
    assert budget.in_use == 8 * MB


def test_upload_to_a_cloud_fits_into_the_smallest_budget(tmp_path: Path) -> None:
    assert upload_memory_bytes(MAX_UPLOAD_BYTES) == MAX_UPLOAD_MEMORY_BYTES

    async def reserve() -> None:
        policies = HttpPolicies.open(Settings(home=tmp_path, limits=RequestLimits(body_mb=1, bodies_mb=16)))
        policies.body_budget.reserve({}, "alice", upload_memory_bytes(MAX_UPLOAD_BYTES))
        assert policies.body_budget.in_use == MAX_UPLOAD_MEMORY_BYTES
        policies.close()

    asyncio.run(reserve())
