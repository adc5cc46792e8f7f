"""Connection with the web server of a task, which speaks HTTP/1.1."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import cast

import h11

from paiprotocol.errors import PaiError

# Read ahead of what the browser takes.
_MAX_BUFFER_BYTES = 256 << 10
_MAX_HEAD_BYTES = 64 << 10
"""Of a response's status line and headers."""


class BadGateway(PaiError):
    """The task's server does not speak HTTP."""

    status = 502
    code = "BadGatewayError"


class Upstream(asyncio.Protocol):
    """One request and its response; or, after an upgrade, the bytes of a WebSocket."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._received = bytearray()
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_lost = False
        self.transport: asyncio.Transport

    @classmethod
    async def connect(cls, connection: socket.socket) -> Upstream:
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        _, upstream = await loop.create_connection(cls, sock=connection)
        return upstream

    # -- of asyncio ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _MAX_BUFFER_BYTES:
            self.transport.pause_reading()
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._changed.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- HTTP ------------------------------------------------------------------------------------------

    async def send_head(self, method: str, target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        try:
            head = h11.Request(method=method, target=target, headers=headers)
        except h11.LocalProtocolError as error:
            raise _not_passed_on(error) from None
        await self.send(head)

    async def send(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        """Send a part of the request. A server that has gone is noticed by `receive`."""
        try:
            data = self._http.send(event)
        except h11.LocalProtocolError as error:
            raise _not_passed_on(error) from None
        if data and not self._is_lost:
            self.transport.write(data)
            await self._writable.wait()

    async def receive(self) -> h11.Event:
        """The next part of the response."""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                raise BadGateway("The program at this port of the task does not speak HTTP.") from None
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._read())
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise BadGateway("The program at this port of the task closed the connection.")
            elif not (isinstance(event, h11.InformationalResponse) and event.status_code != 101):
                return event  # type: ignore[return-value]

    async def _read(self) -> bytes:
        while not self._received and not self._is_lost:
            self._changed.clear()
            await self._changed.wait()
        return self._take_received()

    def take_rest(self) -> bytes:
        """What follows the head of an upgrade, as far as it was received."""
        return self._http.trailing_data[0] + self._take_received()

    def _take_received(self) -> bytes:
        data = bytes(self._received)
        self._received.clear()
        with contextlib.suppress(RuntimeError):  # it is closing
            self.transport.resume_reading()
        return data

    def close(self) -> None:
        self.transport.close()


def _not_passed_on(error: h11.LocalProtocolError) -> BadGateway:
    return BadGateway(f"The request cannot be passed on: {error}.")
