"""Relay of forwarded connections: copies between pairs of streams, each as fast as the slower one takes it.

Used by both ends of a forwarded connection. Between them the bytes are in WebSocket frames, so that the end
of one direction differs from a connection that broke, also over TLS and through proxies.
"""

import selectors
import socket
import struct
import time

from pairuntime.transport import websocket

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs time
    from typing import Callable, Union

    # What a loop waits for: a socket or a descriptor.
    Watched = Union[socket.socket, int]

PROTOCOL = "pai.forward.v1"

# What a forwarder tells its server of a port that it could not reach, in messages of at most so many bytes.
REFUSED = "refused"
TIMEOUT = "timeout"
MAX_MESSAGE_BYTES = 4096

CHUNK_BYTES = 256 << 10
# What waits for a slow stream, above which nothing is read from the other one.
_MAX_PENDING_BYTES = 1 << 20
# So that no proxy considers a connection idle, and a vanished peer is noticed.
PING_INTERVAL_S = 20.0
_RESET = struct.pack("ii", 1, 0)


class Broken(Exception):
    """The stream ended without its regular end."""


class Stream:
    """One connection, without framing: the end of its input is the end of a direction."""

    def __init__(self, sock: "socket.socket") -> "None":
        sock.setblocking(False)
        self.sock = sock
        self.has_ended = False
        """No more bytes will be received."""
        self._pending = bytearray()
        self._ends = False
        self._is_deaf = False

    @property
    def pending_bytes(self) -> "int":
        return len(self._pending)

    @property
    def is_reading(self) -> "bool":
        return not self.has_ended

    @property
    def has_received(self) -> "bool":
        """Whether bytes have arrived that no poll of the socket reports."""
        return False

    @property
    def is_done(self) -> "bool":
        """Both directions have ended, and everything is written."""
        return self.has_ended and self._ends and not self._pending

    def receive(self) -> "bytes":
        """Bytes that have arrived; empty if there are none yet, or no more (``has_ended``)."""
        data = self._read()
        if data == b"":
            if self._is_deaf:
                raise Broken
            self.has_ended = True
        return data or b""

    def send(self, data: "bytes") -> "None":
        self._write(data)

    def send_end(self) -> "None":
        """Tell the peer that no more bytes will be sent."""
        self._ends = True
        self.flush()

    def ping(self) -> "None":
        """Send a message without effect, to keep the connection alive."""

    def flush(self) -> "None":
        if self._pending:
            del self._pending[: self._send_some(self._pending)]
        if self._ends and not self._pending:
            self._shut_down()

    def close(self) -> "None":
        self.sock.close()

    def reset(self) -> "None":
        """Close so that the peer does not take what it has got for all."""
        if self.sock.family in (socket.AF_INET, socket.AF_INET6):
            try:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            except OSError:
                pass  # it is closed already
        self.sock.close()

    def _shut_down(self) -> "None":
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the peer has closed its end already

    def _read(self) -> "bytes | None":
        """The next bytes; empty at the end, None if there are none yet."""
        try:
            return self.sock.recv(CHUNK_BYTES)
        except OSError as e:
            if _would_block(e):
                return None
            raise Broken

    def _write(self, data: "bytes") -> "None":
        if self._pending:
            self._pending += data
        else:
            sent = self._send_some(data)
            if sent < len(data):
                self._pending += memoryview(data)[sent:]

    def _send_some(self, data: "bytes | bytearray") -> "int":
        if self._is_deaf:
            return len(data)
        try:
            return self.sock.send(data)
        except OSError as e:
            if _would_block(e):
                return 0
            self._on_deaf_peer()
            return len(data)

    def _on_deaf_peer(self) -> "None":
        # What it has sent before can still be read; its end is then an error.
        self._is_deaf = True


class WebSocketStream(Stream):
    """A WebSocket whose binary messages are the bytes. An empty one is the end of its direction.

    ``masks``: this is the client's end. ``received``: bytes that came together with the response that opened
    the WebSocket.
    """

    def __init__(self, sock: "socket.socket", *, masks: "bool", received: "bytes" = b"") -> "None":
        super().__init__(sock)
        self._received = received
        self._masks = masks
        self._mask_key = websocket.key_for(sock) if masks else b""
        self._reader = websocket.MessageReader(masked=not masks)
        self._has_peer_closed = False
        self._has_sent_close = False

    @property
    def is_reading(self) -> "bool":
        # Until the peer's close frame: closed before, the connection could be reset, and lose what the peer
        # has not read yet.
        return not self._has_peer_closed

    @property
    def is_done(self) -> "bool":
        return self._has_sent_close and self._has_peer_closed and not self._pending

    @property
    def has_received(self) -> "bool":
        return bool(self._received) or websocket.has_decrypted(self.sock)

    def receive(self) -> "bytes":
        parts = []  # type: list[bytes]
        data, self._received = self._received or self._read(), b""
        try:
            while data:
                for opcode, payload in self._reader.feed(data):
                    if opcode == websocket.BINARY:
                        self._on_data(payload, parts)
                    elif opcode == websocket.PING:
                        self._write(self._frame(websocket.PONG, payload))
                    elif opcode == websocket.CLOSE:
                        self._on_close(payload)
                data = self._read() if websocket.has_decrypted(self.sock) else None
        except websocket.WebSocketError:
            raise Broken
        if data == b"" and not self._has_peer_closed:
            raise Broken
        return b"".join(parts) if len(parts) != 1 else parts[0]

    def _on_data(self, payload: "bytes", parts: "list[bytes]") -> "None":
        if self.has_ended:
            raise Broken
        if payload:
            parts.append(payload)
        else:
            self.has_ended = True
            self._close_after_both_ends()

    def _on_close(self, payload: "bytes") -> "None":
        if int.from_bytes(payload[:2], "big") != websocket.NORMAL or not self.has_ended:
            raise Broken
        self._has_peer_closed = True

    def send(self, data: "bytes") -> "None":
        self._write(self._frame(websocket.BINARY, data))

    def send_end(self) -> "None":
        self._ends = True
        self._write(self._frame(websocket.BINARY, b""))
        self._close_after_both_ends()

    def ping(self) -> "None":
        if not self._pending:
            self._write(self._frame(websocket.PING, b""))

    def flush(self) -> "None":
        if self._pending:
            del self._pending[: self._send_some(self._pending)]

    def reset(self) -> "None":
        if not self._has_sent_close and not self._pending:
            try:
                self._write(websocket.close_frame(websocket.BROKEN, masked=self._masks))
            except Broken:
                pass
        self.sock.close()

    def _close_after_both_ends(self) -> "None":
        if self.has_ended and self._ends and not self._has_sent_close:
            self._has_sent_close = True
            self._write(websocket.close_frame(websocket.NORMAL, masked=self._masks))

    def _frame(self, opcode: "int", payload: "bytes") -> "bytes":
        return websocket.frame(opcode, payload, masked=self._masks, key=self._mask_key)

    def _on_deaf_peer(self) -> "None":
        if not self._has_peer_closed:
            raise Broken
        self._is_deaf = True


def _would_block(error: "OSError") -> "bool":
    # By name: the module `ssl` takes long to import.
    return isinstance(error, BlockingIOError) or type(error).__name__ in (
        "SSLWantReadError",
        "SSLWantWriteError",
    )


class Relay:
    """Two streams; what one receives is sent to the other one, to the end of both directions."""

    def __init__(
        self, loop: "RelayLoop", near: "Stream", far: "Stream", on_end: "Callable[[], None]"
    ) -> "None":
        self._loop = loop
        self._near = near
        self._far = far
        self._on_end = on_end
        self.is_over = False
        loop.watch(near.sock, 0, lambda events: self._on_events(near, far, events))
        loop.watch(far.sock, 0, lambda events: self._on_events(far, near, events))
        loop.add_relay(self)
        self._watch_both()
        for stream, other in ((near, far), (far, near)):
            if stream.has_received and not self.is_over:
                self._on_events(stream, other, selectors.EVENT_READ)

    def _on_events(self, stream: "Stream", other: "Stream", events: "int") -> "None":
        try:
            if events & selectors.EVENT_READ:
                self._copy(stream, other)
            if events & selectors.EVENT_WRITE:
                stream.flush()
        except Broken:
            self.break_off()
            return
        if self._near.is_done and self._far.is_done:
            self._end(Stream.close)
        else:
            self._watch_both()

    def _copy(self, stream: "Stream", other: "Stream") -> "None":
        had_ended = stream.has_ended
        data = stream.receive()
        if data:
            other.send(data)
        if stream.has_ended and not had_ended:
            other.send_end()

    def _watch_both(self) -> "None":
        for stream, other in ((self._near, self._far), (self._far, self._near)):
            reads = stream.is_reading and other.pending_bytes < _MAX_PENDING_BYTES
            events = selectors.EVENT_READ if reads else 0
            self._loop.change(stream.sock, events | (selectors.EVENT_WRITE if stream.pending_bytes else 0))

    def ping(self) -> "None":
        try:
            self._near.ping()
            self._far.ping()
            self._watch_both()
        except Broken:
            self.break_off()

    def break_off(self) -> "None":
        """End both connections as broken."""
        if not self.is_over:
            self._end(lambda stream: stream.reset())

    def _end(self, close: "Callable[[Stream], None]") -> "None":
        self.is_over = True
        for stream in (self._near, self._far):
            self._loop.forget(stream.sock)
            close(stream)
        self._loop.remove_relay(self)
        self._on_end()


class RelayLoop:
    """Waits for the connections of all relays in one thread."""

    def __init__(self) -> "None":
        self._selector = selectors.DefaultSelector()
        self._handlers = {}  # type: dict[Watched, Callable[[int], None]]
        self._events = {}  # type: dict[Watched, int]
        self._relays = set()  # type: set[Relay]
        self._next_ping = time.time() + PING_INTERVAL_S
        self._wake_r, self._wake_w = socket.socketpair()
        for end in (self._wake_r, self._wake_w):
            end.setblocking(False)
        self._calls = []  # type: list[Callable[[], None]]
        self.watch(self._wake_r, selectors.EVENT_READ, self._run_calls)

    @property
    def relays(self) -> "tuple[Relay, ...]":
        return tuple(self._relays)

    def watch(self, sock: "Watched", events: "int", handler: "Callable[[int], None]") -> "None":
        """Call the handler for each of these events; 0: for none yet (`change`)."""
        self._handlers[sock] = handler
        self._events[sock] = 0
        self.change(sock, events)

    def change(self, sock: "Watched", events: "int") -> "None":
        before = self._events[sock]
        if events == before:
            return
        if not before:
            self._selector.register(sock, events)
        elif not events:
            self._selector.unregister(sock)
        else:
            self._selector.modify(sock, events)
        self._events[sock] = events

    def forget(self, sock: "Watched") -> "None":
        self.change(sock, 0)
        del self._events[sock], self._handlers[sock]

    def add_relay(self, relay: "Relay") -> "None":
        self._relays.add(relay)

    def remove_relay(self, relay: "Relay") -> "None":
        self._relays.discard(relay)

    def call(self, function: "Callable[[], None]") -> "None":
        """Call the function in the loop's thread; safe from any thread."""
        self._calls.append(function)
        try:
            self._wake_w.send(b"\0")
        except OSError:
            pass  # it wakes up anyway, or is closed

    def _run_calls(self, events: "int") -> "None":
        try:
            self._wake_r.recv(4096)
        except BlockingIOError:
            pass
        while self._calls:
            self._calls.pop(0)()

    def step(self, timeout_s: "float" = PING_INTERVAL_S) -> "None":
        """Wait for the next events, for this long at most, and handle them."""
        timeout_s = max(0.0, min(timeout_s, self._next_ping - time.time()))
        for key, events in self._selector.select(timeout_s):
            handler = self._handlers.get(key.fileobj)  # type: ignore[arg-type]
            # It may have been forgotten by the handler of an earlier event.
            if handler is not None:
                handler(events)
        if time.time() >= self._next_ping:
            self._next_ping = time.time() + PING_INTERVAL_S
            for relay in self.relays:
                relay.ping()

    def close(self) -> "None":
        for relay in self.relays:
            relay.break_off()
        self._selector.close()
        self._wake_r.close()
        self._wake_w.close()
