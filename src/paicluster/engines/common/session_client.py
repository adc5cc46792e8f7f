"""Client of a session host inside the server, for protocols that the server itself speaks: SSH.

Clients of the API have the host's other end of the WebSocket; here it is a socket pair. Messages and their
meaning are those of docs/contributing/exec-and-forward.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from pairuntime.transport import session_messages, websocket

SIGNALS = session_messages.SIGNALS
RFC_SIGNALS = session_messages.RFC_SIGNALS
STDERR = session_messages.STDERR


@dataclass(frozen=True)
class SessionEnd:
    """How a session ended. ``status``: that of the command; None if there is none, then ``error`` says why.

    ``signal``: the one that ended the command, as TERM.
    """

    status: int | None = None
    signal: str = ""
    error: str = ""


class SessionListener(Protocol):
    """Receives the events of a session."""

    def output_received(self, stream: int, data: bytes) -> None: ...

    def input_accepted(self) -> None:
        """The command took input: more may be sent."""

    def session_ended(self, end: SessionEnd) -> None:
        """The session has ended; called once."""


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
        return self._unacknowledged + session_messages.CHUNK_BYTES > session_messages.STDIN_WINDOW_BYTES

    # -- to the host ---------------------------------------------------------------------------

    def start(self, command: Sequence[str], terminal: tuple[str, int, int] | None) -> None:
        """Run a command; ``terminal``: its type, rows and columns."""
        fields: dict[str, object] = {"command": list(command)}
        if terminal is not None:
            fields["terminal"] = dict(zip(("term", "rows", "columns"), terminal, strict=True))
        self._send(session_messages.START, **fields)

    def send_input(self, data: bytes) -> None:
        """Send input. The caller stops while the session `is_full`."""
        for start in range(0, len(data), session_messages.CHUNK_BYTES):
            part = data[start : start + session_messages.CHUNK_BYTES]
            self._unacknowledged += len(part)
            self._write(websocket.BINARY, bytes((session_messages.STDIN,)) + part)

    def end_input(self) -> None:
        self._send(session_messages.STDIN_END)

    def resize(self, rows: int, columns: int) -> None:
        self._send(session_messages.RESIZE, rows=rows, columns=columns)

    def send_signal(self, name: str) -> None:
        self._send(session_messages.SIGNAL, name=name)

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
        self._write(websocket.TEXT, session_messages.encode(kind, **fields))

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
                self._on_control(session_messages.decode(payload))

    def _on_control(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == session_messages.ACK:
            self._unacknowledged -= int(message["bytes"])
            if self._listener is not None:
                self._listener.input_accepted()
        elif kind == session_messages.EXIT:
            self._end(SessionEnd(int(message["status"]), str(message.get("signal", ""))))
        elif kind == session_messages.ERROR:
            self._end(SessionEnd(error=str(message["message"])))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(SessionEnd(error="The task has ended."))

    def _end(self, end: SessionEnd) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.session_ended(end)
