"""Memory of responses that are not read: a budget for each user and for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from paicluster.api.middleware.response_budget import PIECE_BYTES, ResponseBudget, sent_in_pieces
from paicluster.api.middleware.slow_clients import MIN_BYTES_PER_S
from paiprotocol.errors import Unavailable
from support.server_fixture import DEADLINE_S, eventually, job
from support.team_cluster import TeamCluster

MB = 1 << 20


def small_budget(wait_s: float = DEADLINE_S, max_waiting: int = 64) -> ResponseBudget:
    return ResponseBudget(per_owner_bytes=10, total_bytes=25, wait_s=wait_s, max_waiting=max_waiting)


def test_user_waits_for_the_own_responses_only() -> None:
    async def scenario() -> None:
        budget = small_budget()
        first: dict[str, Any] = {}
        second: dict[str, Any] = {}
        await budget.admit(first, "alice", 8)
        waiting = asyncio.create_task(budget.admit(second, "alice", 8))
        await budget.admit({}, "bob", 8)
        assert not waiting.done()
        budget.release(first)
        await waiting
        budget.release(second)
        assert budget.in_use == 8

    asyncio.run(scenario())


def test_all_users_together_have_a_bound() -> None:
    async def scenario() -> None:
        budget = small_budget()
        scopes: list[dict[str, Any]] = [{}, {}, {}]
        await budget.admit(scopes[0], "a", 10)
        await budget.admit(scopes[1], "b", 10)
        waiting = asyncio.create_task(budget.admit(scopes[2], "c", 10))
        await asyncio.sleep(0)
        assert not waiting.done()
        budget.release(scopes[0])
        await waiting
        assert budget.in_use == 20

    asyncio.run(scenario())


def test_response_larger_than_the_budget_is_admitted_alone() -> None:
    async def scenario() -> None:
        budget = small_budget(wait_s=0.01)
        scope: dict[str, Any] = {}
        await budget.admit(scope, "a", 20)
        with pytest.raises(Unavailable, match="this user"):
            await budget.admit({}, "a", 1)
        budget.release(scope)
        await budget.admit(scope, "a", 100)
        with pytest.raises(Unavailable, match="all users"):
            await budget.admit({}, "b", 1)
        budget.release(scope)
        assert budget.in_use == 0

    asyncio.run(scenario())


def test_wait_ends_with_503_and_its_place_is_free() -> None:
    async def scenario() -> None:
        budget = small_budget(wait_s=0.01)
        held: dict[str, Any] = {}
        await budget.admit(held, "alice", 10)
        with pytest.raises(Unavailable) as refused:
            await budget.admit({}, "alice", 10)
        assert refused.value.retry_after_s
        budget.release(held)
        await budget.admit({}, "alice", 10)

    asyncio.run(scenario())


def test_only_some_requests_of_a_user_wait() -> None:
    async def scenario() -> None:
        budget = small_budget(max_waiting=2)
        await budget.admit({}, "alice", 10)
        waiting = [asyncio.create_task(budget.admit({}, "alice", 1)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await budget.admit({}, "alice", 1)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    asyncio.run(scenario())


def test_place_of_a_cancelled_request_is_given_to_the_next() -> None:
    async def scenario() -> None:
        budget = small_budget()
        held: dict[str, Any] = {}
        await budget.admit(held, "alice", 10)
        cancelled = asyncio.create_task(budget.admit({}, "alice", 10))
        following = asyncio.create_task(budget.admit({}, "alice", 10))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        budget.release(held)
        await following
        assert budget.in_use == 10

    asyncio.run(scenario())


def test_one_body_of_several_responses_is_counted_once() -> None:
    budget = small_budget()
    body = b"x" * 9
    scopes: list[dict[str, Any]] = [{}, {}]
    for scope in scopes:
        budget.hold(scope, "alice", body)
    assert budget.in_use == 9
    with pytest.raises(Unavailable):
        budget.hold({}, "alice", b"y" * 9)
    budget.release(scopes[0])
    assert budget.in_use == 9
    budget.release(scopes[1])
    assert budget.in_use == 0


def test_admitted_response_is_counted_with_its_size() -> None:
    async def scenario() -> None:
        budget = small_budget()
        scope: dict[str, Any] = {}
        await budget.admit(scope, "alice", 5)
        budget.hold(scope, "alice", b"x" * 7)
        assert budget.in_use == 7
        budget.release(scope)
        assert budget.in_use == 0

    asyncio.run(scenario())


def test_large_body_is_sent_in_pieces() -> None:
    body = bytes(range(256)) * 1000
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("not read")

    response = sent_in_pieces(Response(body, 201, {"x-own": "1"}))
    asyncio.run(response({"type": "http"}, receive, send))
    assert sent[0]["status"] == 201
    headers = dict(sent[0]["headers"])
    assert (headers[b"x-own"], headers[b"content-length"]) == (b"1", str(len(body)).encode())
    assert b"".join(message["body"] for message in sent[1:]) == body
    assert [message["more_body"] for message in sent[1:]] == [True, True, True, False]
    assert all(len(message["body"]) <= PIECE_BYTES for message in sent[1:])


# -- a server whose responses are not read ------------------------------------------------------------


def memory_mb(cluster: TeamCluster) -> int:
    assert cluster.process is not None
    status = Path(f"/proc/{cluster.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) >> 10


@contextlib.contextmanager
def unread(cluster: TeamCluster, path: str, token: str, count: int) -> Iterator[None]:
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            peer = stack.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.settimeout(DEADLINE_S)
            peer.connect(cluster.address)
            peer.sendall(request)
        yield


@pytest.mark.slow
def test_unread_details_take_little_memory(new_team: Any) -> None:
    """Of a large job that changes all the time, so that each response is another one; with a job's token."""
    cluster: TeamCluster = new_team("limits: {slow-client: 3s}\n")
    token = cluster.token_of_job("holder", cluster.token)
    cluster.accept(job("large", "sleep 600", instances=10_000, cpu=40, extras={"gangAllocation": False}))
    cluster.wait_state("large", "RUNNING")
    path = cluster.path("large")
    first = cluster.get(path, token=token).body
    assert len(first) > 4 * MB
    before = memory_mb(cluster)
    with unread(cluster, path, token, 100):
        for number in range(20):
            tag = {"value": f"change-{number}"}
            assert cluster.ask("PUT", cluster.path("large", "/tag"), tag).status == 200
            # Another user is served meanwhile.
            reply = cluster.get("/api/v2/jobs?limit=50", token=cluster.tokens["bob"])
            assert reply.status == 200
            assert memory_mb(cluster) - before < 128
        # Connections that read nothing are closed, which makes space for the user's next request.
        eventually(lambda: cluster.get(path, token=token).status == 200, "space for a response")


class SlowReaders:
    """Clients that read so many bytes a second, each with its own thread."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def read(self, cluster: TeamCluster, path: str, token: str) -> None:
        """Begin to read a response; returns when it has begun."""
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(DEADLINE_S)
        peer.connect(cluster.address)
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        assert peer.recv(100).startswith(b"HTTP/1.1 200")
        self._threads.append(threading.Thread(target=self._go_on, args=(peer,), daemon=True))
        self._threads[-1].start()

    def _go_on(self, peer: socket.socket) -> None:
        began = time.monotonic()
        done = 0
        with peer, contextlib.suppress(OSError):
            while not self._stopped.wait(0.1):
                due = int((time.monotonic() - began) * self._bytes_per_s) - done
                if due > 0:
                    data = peer.recv(due)
                    if not data:
                        return
                    done += len(data)

    def close(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)


@pytest.mark.slow
def test_slow_readers_make_room_for_waiting_requests(new_team: Any) -> None:
    """Also those that are fast enough while nothing waits."""
    cluster: TeamCluster = new_team("limits: {slow-client: 4s}\n")
    token = cluster.token_of_job("holder", cluster.token)
    cluster.accept(job("large", "sleep 600", instances=10_000, cpu=40, extras={"gangAllocation": False}))
    cluster.wait_state("large", "RUNNING")
    path = cluster.path("large")
    with contextlib.closing(SlowReaders(3 * MIN_BYTES_PER_S)) as readers:
        for number in range(3):
            # Each is another response.
            tag = {"value": f"change-{number}"}
            assert cluster.ask("PUT", cluster.path("large", "/tag"), tag).status == 200
            readers.read(cluster, path, token)
        assert cluster.ask("PUT", cluster.path("large", "/tag"), {"value": "another"}).status == 200
        eventually(lambda: cluster.get(path, token=token).status == 200, "space for a response")


def test_space_is_wanted_by_those_who_wait_for_it() -> None:
    async def scenario() -> None:
        budget = small_budget(wait_s=0.01)
        own: dict[str, Any] = {}
        other: dict[str, Any] = {}
        await budget.admit(own, "alice", 10)
        await budget.admit(other, "bob", 10)
        assert not budget.is_wanted(own, time.monotonic()) and not budget.is_wanted({}, time.monotonic())
        with pytest.raises(Unavailable, match="this user"):
            await budget.admit({}, "alice", 1)
        assert budget.is_wanted(own, time.monotonic()) and not budget.is_wanted(other, time.monotonic())
        assert not budget.is_wanted(own, time.monotonic() + 60)
        with pytest.raises(Unavailable, match="all users"):
            await budget.admit({}, "carol", 10)
        assert budget.is_wanted(other, time.monotonic())

    asyncio.run(scenario())


@pytest.mark.slow
def test_long_list_is_sent_in_parts(new_team: Any) -> None:
    cluster: TeamCluster = new_team()
    cluster.accept(job("holder", "sleep 600", cpu=64))
    cluster.wait_state("holder", "RUNNING")
    cluster.accept(job("waiting", "true", cpu=64))
    assert cluster.terminate() == 0
    multiply_job(cluster, "waiting", 5200)
    cluster.start()
    cluster.token = cluster.log_in("alice")
    pages = [cluster.get(f"/api/v2/jobs?offset={offset}").json() for offset in (0, 5000)]
    reply = cluster.get("/api/v2/jobs?limit=50000")
    assert reply.headers.get("transfer-encoding") == "chunked" and len(reply.json()) == 5202
    assert reply.json() == pages[0] + pages[1]
    counted = cluster.get("/api/v2/jobs?limit=50000&withTotalCount=true&reasons=true").json()
    assert counted["totalCount"] == len(counted["data"]) == 5202
    assert "reason" in counted["data"][0]
    # Fewer jobs are sent whole.
    few = cluster.get("/api/v2/jobs?limit=50000&state=RUNNING")
    assert "content-length" in few.headers and [one["name"] for one in few.json()] == ["holder"]


def multiply_job(cluster: TeamCluster, name: str, count: int) -> None:
    """Add finished copies of a job to the database of a cluster that does not run."""
    with contextlib.closing(sqlite3.connect(cluster.home / "cluster.db")) as database, database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(jobs)") if row[1] != "id"]
        values = {column: column for column in columns}
        values.update({column: f"{column} || '-' || value" for column in ("framework", "name", "debug_id")})
        values.update(state="'SUCCEEDED'", sub_state="'Completed'", completed_ms="submission_ms")
        database.execute(
            f"INSERT INTO jobs ({', '.join(columns)}) WITH RECURSIVE numbers(value) AS "
            f"(SELECT 1 UNION ALL SELECT value + 1 FROM numbers WHERE value < {count}) "
            f"SELECT {', '.join(values[column] for column in columns)} FROM jobs, numbers "
            f"WHERE name = '{name}'"
        )
