"""Client of a session host inside the server, for protocols that the server itself speaks: SSH.

Clients of the API have the host's other end of the WebSocket; here it is a socket pair. Messages and their
meaning are those of docs/contributing/exec-and-forward.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, cast

from pairuntime.session import messages, websocket

SIGNALS = messages.SIGNALS
STDERR = messages.STDERR


class SessionListener(Protocol):
    """Receives the events of a session."""

    def output_received(self, stream: int, data: bytes) -> None: ...

    def input_accepted(self) -> None:
        """The command took input: more may be sent."""

    def session_ended(self, status: int | None, error: str) -> None:
        """Called once. ``status``: of the command; None if there is none, then ``error`` says why."""


class SessionClient(asyncio.Protocol):
    """One session, over a socket that is connected with its host."""

    def __init__(self, listener: SessionListener) -> None:
        self._listener: SessionListener | None = listener
        self._reader = websocket.MessageReader(masked=False)
        self._transport: asyncio.Transport | None = None
        self._unacknowledged = 0

    @property
    def is_full(self) -> bool:
        """Whether the host has not acknowledged enough input to be sent more."""
        return self._unacknowledged + messages.CHUNK_BYTES > messages.STDIN_WINDOW_BYTES

    # -- to the host ---------------------------------------------------------------------------

    def start(self, command: Sequence[str], terminal: tuple[str, int, int] | None) -> None:
        """Run a command; ``terminal``: its type, rows and columns."""
        fields: dict[str, object] = {"command": list(command)}
        if terminal is not None:
            fields["terminal"] = dict(zip(("term", "rows", "columns"), terminal, strict=True))
        self._send(messages.START, **fields)

    def send_input(self, data: bytes) -> None:
        """Send input. The caller stops while the session `is_full`."""
        for start in range(0, len(data), messages.CHUNK_BYTES):
            part = data[start : start + messages.CHUNK_BYTES]
            self._unacknowledged += len(part)
            self._write(websocket.BINARY, bytes((messages.STDIN,)) + part)

    def end_input(self) -> None:
        self._send(messages.STDIN_END)

    def resize(self, rows: int, columns: int) -> None:
        self._send(messages.RESIZE, rows=rows, columns=columns)

    def send_signal(self, name: str) -> None:
        self._send(messages.SIGNAL, name=name)

    def pause_output(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_output(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """End the session; what the command started is killed. The listener hears no more of it."""
        self._listener = None
        if self._transport is not None:
            self._transport.close()

    def _send(self, kind: str, **fields: object) -> None:
        self._write(websocket.TEXT, messages.encode(kind, **fields))

    def _write(self, opcode: int, payload: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(websocket.frame(opcode, payload, masked=True))

    # -- from the host -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for opcode, payload in self._reader.feed(data):
            if opcode == websocket.BINARY:
                if self._listener is not None:
                    self._listener.output_received(payload[0], payload[1:])
            elif opcode == websocket.PING:
                self._write(websocket.PONG, payload)
            elif opcode == websocket.TEXT:
                self._on_control(messages.decode(payload))

    def _on_control(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == messages.ACK:
            self._unacknowledged -= int(message["bytes"])
            if self._listener is not None:
                self._listener.input_accepted()
        elif kind == messages.EXIT:
            self._end(int(message["status"]), "")
        elif kind == messages.ERROR:
            self._end(None, str(message["message"]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(None, "The task has ended.")

    def _end(self, status: int | None, error: str) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.session_ended(status, error)
