"""Client's end of a session: a command in a running task, over one WebSocket.

Blocking, without threads and asyncio, whose import would take longer than most commands. The host always
reads what is sent, so sending never waits for the command.
"""

from __future__ import annotations

from paiprotocol.errors import ConnectionFailed, PaiError
from pairuntime.transport import session_messages, websocket
from pairuntime.transport.session_messages import CHUNK_BYTES, PROTOCOL, STDERR, STDIN_WINDOW_BYTES, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

__all__ = ["CHUNK_BYTES", "PROTOCOL", "STDERR", "STDOUT", "ConnectionLost", "Session", "SessionRefused"]


class ConnectionLost(ConnectionFailed):
    """The connection was lost before the command ended; the cluster then kills the command."""

    exit_status = 255


class SessionRefused(PaiError):
    """The command could not be started."""


class Session:
    """An open session. ``received``: bytes that came with the response that opened the WebSocket."""

    def __init__(self, sock: socket.socket, received: bytes = b""):
        self._sock = sock
        self._received = received
        self._reader = websocket.MessageReader(masked=False)
        self._mask_key = websocket.key_for(sock)
        self.stdin_credit = STDIN_WINDOW_BYTES
        """Bytes of stdin that may be sent now."""
        self.exit_status: int | None = None
        """Exit status of the command, once it has ended."""
        self.signal = ""
        """The signal that ended it, as TERM."""

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def has_received(self) -> bool:
        """Whether `receive` returns without waiting, although no poll of the socket would say so."""
        return bool(self._received) or websocket.has_decrypted(self._sock)

    # -- sending -------------------------------------------------------------------------------

    def start(self, command: Sequence[str], terminal: tuple[str, int, int] | None = None) -> None:
        """Start a command; an empty one is the user's shell. ``terminal``: type, rows and columns."""
        fields: dict[str, object] = {"command": list(command)}
        if terminal is not None:
            term, rows, columns = terminal
            fields["terminal"] = {"term": term, "rows": rows, "columns": columns}
        self._control(session_messages.START, **fields)

    def send_stdin(self, data: bytes) -> None:
        """Send input, at most ``stdin_credit`` bytes."""
        self.stdin_credit -= len(data)
        self._send(websocket.BINARY, bytes((session_messages.STDIN,)) + data)

    def end_stdin(self) -> None:
        self._control(session_messages.STDIN_END)

    def resize(self, rows: int, columns: int) -> None:
        self._control(session_messages.RESIZE, rows=rows, columns=columns)

    def send_signal(self, name: str) -> None:
        """Send a signal, as ``INT``, to the command."""
        self._control(session_messages.SIGNAL, name=name)

    def close(self) -> None:
        self._sock.close()

    def _control(self, kind: str, **fields: object) -> None:
        self._send(websocket.TEXT, session_messages.encode(kind, **fields))

    def _send(self, opcode: int, payload: bytes) -> None:
        try:
            self._sock.sendall(websocket.frame(opcode, payload, masked=True, key=self._mask_key))
        except OSError:
            # What the host has sent before, which may be the end of the command, is still to be read.
            pass

    # -- receiving -----------------------------------------------------------------------------

    def receive(self) -> Iterator[tuple[int, bytes]]:
        """Wait for the next bytes: output as pairs of stream and data. Sets ``exit_status`` at the end."""
        data, self._received = self._received, b""
        try:
            data = data or self._sock.recv(CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            raise _lost()
        try:
            for opcode, payload in self._reader.feed(data):
                if opcode == websocket.BINARY:
                    yield payload[0], payload[1:]
                elif opcode == websocket.PING:
                    self._send(websocket.PONG, payload)
                elif opcode == websocket.TEXT:
                    self._on_control(session_messages.decode(payload))
                if self.exit_status is not None:
                    return
        except websocket.WebSocketError:
            raise _lost() from None

    def _on_control(self, message: dict[str, object]) -> None:
        if message.get("type") == session_messages.ACK:
            count = message.get("bytes")
            self.stdin_credit += count if isinstance(count, int) else 0
        elif message.get("type") == session_messages.EXIT:
            status = message.get("status")
            self.exit_status = status if isinstance(status, int) else 1
            self.signal = str(message.get("signal") or "")
        elif message.get("type") == session_messages.ERROR:
            raise SessionRefused(str(message.get("message")))


def _lost() -> ConnectionLost:
    return ConnectionLost(
        "The connection to the cluster was lost, so the command in the task is ended.",
        hint="Run it again. A command that must go on without a connection belongs into a job: pai sub.",
    )
