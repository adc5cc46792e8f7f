"""WebSockets that are opened for a client that has gone meanwhile."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvloop

from paicluster.api.requests.web_socket_upgrade import UpgradeResponse


class Cycle:
    """uvicorn's object of a request, as the response finds it."""

    def __init__(self, transport: asyncio.Transport):
        self.transport = transport

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.disconnect"}


class NeverStarted:
    """A channel that no one reaches."""

    async def start(self, connection: socket.socket) -> None:
        raise AssertionError("started for a client that has gone")

    async def proceed(self) -> None:
        raise AssertionError


def test_client_that_has_gone_is_no_error_of_the_server() -> None:
    """Its connection may be closed between the request and the response, as by a proxy."""

    async def respond() -> list[dict[str, Any]]:
        accepted: list[asyncio.Transport] = []
        lost = asyncio.Event()

        class Connection(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                transport.get_extra_info("socket")  # uvloop keeps what was once asked for
                accepted.append(transport)

            def connection_lost(self, error: Exception | None) -> None:
                lost.set()

        server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
        async with server:
            socket.create_connection(server.sockets[0].getsockname()).close()
            await lost.wait()
            sent: list[dict[str, Any]] = []

            async def send(message: Any) -> None:
                sent.append(message)

            scope: Any = {"type": "http", "method": "GET", "path": "/", "headers": []}
            receive: Any = Cycle(accepted[0]).receive
            await UpgradeResponse(NeverStarted(), "accept", "protocol")(scope, receive, send)
            return sent

    sent = uvloop.run(respond())
    assert sent[0]["status"] == 503
