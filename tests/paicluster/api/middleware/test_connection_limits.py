"""Idle connections of strangers take neither all descriptors nor the place of users."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from paicluster.api.middleware.connection_limits import (
    RESERVED_CONNECTIONS,
    ConnectionLimits,
    TokenConnectionLimit,
    connection_of,
)
from paicluster.api.middleware.slow_clients import LimitedHttpProtocol
from paicluster.api.routing.scope import IDENTITY_KEY
from support.process_template import COMMAND
from support.server_fixture import DEADLINE_S, eventually, job
from support.team_cluster import TeamCluster

SIGNED_IN = b"GET /user HTTP/1.1\r\nHost: x\r\n\r\n"
STUCK = b"GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/user":
        scope[IDENTITY_KEY] = "alice"
    if scope["path"] == "/stuck":
        await asyncio.Event().wait()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Listener:
    """A server with limits, and connections with it in the order in which they were opened."""

    def __init__(self, limits: ConnectionLimits, served: Any = application) -> None:
        self._limits = limits
        self._application = served
        self.state = ServerState()
        self._peers: list[Peer] = []

    async def __aenter__(self) -> Listener:
        config = uvicorn.Config(self._application, ws="none", lifespan="off", log_config=None)
        config.load()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: LimitedHttpProtocol(
                config=config, server_state=self.state, app_state={}, limits=self._limits
            ),
            "127.0.0.1",
            0,
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        for _, writer in self._peers:
            writer.close()
        self._server.close()
        for task in tuple(self.state.tasks):
            task.cancel()

    async def open(self, request: bytes = b"") -> Peer:
        """A connection that the server has seen; with a request whose response has begun."""
        host, port = self._server.sockets[0].getsockname()
        peer = reader, writer = await asyncio.open_connection(host, port)
        self._peers.append(peer)
        own = writer.get_extra_info("sockname")
        async with asyncio.timeout(DEADLINE_S):
            while not reader.at_eof() and own not in self._seen():
                await asyncio.sleep(0)
            if request:
                writer.write(request)
                while request == STUCK and not self.state.tasks:
                    await asyncio.sleep(0)
                if request != STUCK:
                    await reader.readuntil(b"ok")
        return peer

    def _seen(self) -> set[Any]:
        return {getattr(connection, "client", None) for connection in self.state.connections}


async def ends(peer: Peer) -> bool:
    """Wait for the end of a connection; False if it stays open."""
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(DEADLINE_S):
            return await peer[0].read() == b""
    return True


async def is_served(peer: Peer) -> bool:
    peer[1].write(SIGNED_IN)
    async with asyncio.timeout(DEADLINE_S):
        return (await peer[0].readuntil(b"ok")).startswith(b"HTTP/1.1 200")


def test_oldest_silent_connection_of_an_address_makes_room() -> None:
    async def scenario() -> None:
        async with Listener(ConnectionLimits(1000, per_address=3)) as listener:
            user = await listener.open(SIGNED_IN)
            silent = [await listener.open() for _ in range(4)]
            assert await ends(silent[0])
            assert await is_served(user) and await is_served(silent[3])

    asyncio.run(scenario())


def test_address_with_busy_connections_only_gets_no_more() -> None:
    async def scenario() -> None:
        async with Listener(ConnectionLimits(1000, per_address=2)) as listener:
            for _ in range(2):
                await listener.open(STUCK)
            assert await ends(await listener.open())

    asyncio.run(scenario())


def test_shared_address_has_no_limit_of_its_own() -> None:
    async def scenario() -> None:
        limits = ConnectionLimits(1000, per_address=2, is_exempt=lambda address: address == "127.0.0.1")
        async with Listener(limits) as listener:
            peers = [await listener.open() for _ in range(5)]
            for peer in peers:
                assert await is_served(peer)

    asyncio.run(scenario())


def test_silent_connections_of_all_addresses_end_before_those_of_users() -> None:
    async def scenario() -> None:
        async with Listener(ConnectionLimits(3)) as listener:
            user = await listener.open(SIGNED_IN)
            silent = [await listener.open() for _ in range(2)]
            newest = await listener.open()
            assert await ends(silent[0])
            for peer in (user, silent[1], newest):
                assert await is_served(peer)

    asyncio.run(scenario())


def test_busy_connections_leave_the_reserved_ones() -> None:
    async def scenario() -> None:
        async with Listener(ConnectionLimits(2)) as listener:
            for _ in range(2 + RESERVED_CONNECTIONS):
                await listener.open(STUCK)
            assert await ends(await listener.open())

    asyncio.run(scenario())


def test_idle_connections_of_a_token_make_room() -> None:
    limit = TokenConnectionLimit(2)

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        connection = connection_of(receive)
        assert connection is not None
        limit.count(connection, "a token")
        await application(scope, receive, send)

    async def scenario() -> None:
        async with Listener(ConnectionLimits(1000), counting) as listener:
            peers = [await listener.open(SIGNED_IN) for _ in range(3)]
            assert await ends(peers[0])
            assert await is_served(peers[1]) and await is_served(peers[2])

    asyncio.run(scenario())


class Client:
    """A connection with the API on loopback, where the address has no limit."""

    def __init__(self, cluster: TeamCluster, token: str) -> None:
        self._token = token
        self._socket = socket.create_connection(cluster.address, DEADLINE_S)

    def ask(self, path: str = "/api/v2/info") -> int:
        """Send a request; the status of its response."""
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\n\r\n"
        self._socket.sendall(head.encode())
        return int(self._socket.recv(1 << 16).split(b" ")[1])

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def limited(new_team: Any) -> TeamCluster:
    cluster: TeamCluster = new_team("limits: {connections-per-token: 3}\n")
    return cluster


def test_token_with_busy_connections_only_gets_no_more(limited: TeamCluster) -> None:
    limited.accept(job("long", "sleep 600"))
    limited.wait_state("long", "RUNNING")
    alice, bob = limited.tokens["alice"], limited.tokens["bob"]
    with contextlib.ExitStack() as stack:
        followers = [stack.enter_context(contextlib.closing(Client(limited, alice))) for _ in range(3)]
        assert [one.ask(limited.path("long", "/follow")) for one in followers] == [200] * 3
        refused = limited.get("/api/v2/info", token=alice)
        assert (refused.status, "3 open connections" in refused.json()["message"]) == (429, True)
        assert limited.get("/api/v2/info", token=bob).status == 200
        followers[0].close()
        eventually(lambda: limited.get("/api/v2/info", token=alice).status == 200, "room for another one")


# Starts the command that follows with few descriptors.
FEW_FILES = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (700, 700))
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.slow
def test_silent_connections_do_not_keep_users_out(new_team: Any) -> None:
    cluster: TeamCluster = new_team(program=(sys.executable, "-c", FEW_FILES, *COMMAND))
    with contextlib.ExitStack() as stack:
        for _ in range(900):
            stack.enter_context(socket.create_connection(cluster.address, DEADLINE_S))
        begun = time.monotonic()
        for _ in range(5):
            assert cluster.get("/api/v2/jobs?limit=50").status == 200
        assert time.monotonic() - begun < 10
    assert "open files" not in cluster.log.read_text()
