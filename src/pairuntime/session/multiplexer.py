"""Multiplexer: many connections over one stream, where only a command line reaches the task's machine.

Each end copies between its connections and numbered channels of the stream. A channel has a window, so that a
slow connection does not hold up the others, and each of its directions ends alone.
"""

import json
import os
import selectors
import socket
import struct

from pairuntime.transport.relay import CHUNK_BYTES, RelayLoop

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs time
    from typing import Any, Callable

# Channel, kind and size of a frame.
_HEAD = struct.Struct(">IBI")
_MESSAGE, _DATA, _END, _RESET, _CREDIT = range(5)
# After each frame: srun holds back the part of a line.
_TERMINATOR = b"\n"
_CREDIT_FIELD = struct.Struct(">I")

# Of one direction of a channel: bytes that were sent and that the peer has not written yet.
_WINDOW_BYTES = 256 << 10
_MAX_FRAME_BYTES = _WINDOW_BYTES
# What waits for the stream, above which no connection is read.
_MAX_PENDING_BYTES = 1 << 20


class Multiplexer:
    """One end of the stream. ``on_message`` gets what the other end gave to `send_message`."""

    def __init__(
        self,
        loop: "RelayLoop",
        read_fd: "int",
        write_fd: "int",
        on_message: "Callable[[dict[str, Any]], None]",
    ) -> "None":
        self.loop = loop
        self.is_open = True
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._on_message = on_message
        self._channels = {}  # type: dict[int, _Channel]
        self._received = bytearray()
        self._pending = bytearray()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
            loop.watch(fd, 0, self._on_events)
        self._watch()

    @property
    def has_channels(self) -> "bool":
        return bool(self._channels)

    @property
    def is_full(self) -> "bool":
        return len(self._pending) > _MAX_PENDING_BYTES

    def add(self, number: "int", sock: "socket.socket") -> "None":
        """Connect a connection with the channel of this number."""
        self._channels[number] = _Channel(self, number, sock)

    def remove(self, number: "int") -> "None":
        self._channels.pop(number, None)

    def send_message(self, message: "dict[str, Any]") -> "None":
        self.send_frame(0, _MESSAGE, json.dumps(message).encode())

    def send_frame(self, number: "int", kind: "int", payload: "bytes" = b"") -> "None":
        self._pending += _HEAD.pack(number, kind, len(payload))
        self._pending += payload
        self._pending += _TERMINATOR
        self._flush()

    def _flush(self) -> "None":
        was_full = self.is_full
        try:
            while self._pending and self.is_open:
                del self._pending[: os.write(self._write_fd, self._pending[:CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self._close()
        if self.is_open:
            self._watch()
        if was_full and not self.is_full:
            for channel in tuple(self._channels.values()):
                channel.watch()

    def _watch(self) -> "None":
        self.loop.change(self._read_fd, selectors.EVENT_READ)
        self.loop.change(self._write_fd, selectors.EVENT_WRITE if self._pending else 0)

    def _on_events(self, events: "int") -> "None":
        if events & selectors.EVENT_READ:
            self._receive()
        if events & selectors.EVENT_WRITE and self.is_open:
            self._flush()

    def _receive(self) -> "None":
        try:
            data = os.read(self._read_fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        received = self._received
        received += data
        start = 0
        while self.is_open and len(received) - start >= _HEAD.size:
            number, kind, size = _HEAD.unpack_from(received, start)
            if size > _MAX_FRAME_BYTES:
                self._close()
                return
            end = start + _HEAD.size + size
            if len(received) < end + len(_TERMINATOR):
                break
            self._on_frame(number, kind, bytes(received[start + _HEAD.size : end]))
            start = end + len(_TERMINATOR)
        del received[:start]

    def _on_frame(self, number: "int", kind: "int", payload: "bytes") -> "None":
        if kind == _MESSAGE:
            try:
                message = json.loads(payload.decode())
            except (ValueError, RecursionError):
                message = None
            if isinstance(message, dict):
                self._on_message(message)
            return
        channel = self._channels.get(number)
        if channel is None:
            return  # it has just been reset
        if kind == _DATA:
            channel.on_data(payload)
        elif kind == _END:
            channel.on_end()
        elif kind == _CREDIT and len(payload) == _CREDIT_FIELD.size:
            channel.on_credit(_CREDIT_FIELD.unpack(payload)[0])
        else:
            channel.close()

    def _close(self) -> "None":
        if self.is_open:
            self.is_open = False
            for channel in tuple(self._channels.values()):
                channel.close()
            for fd in (self._read_fd, self._write_fd):
                self.loop.forget(fd)


class _Channel:
    """A connection of this end."""

    def __init__(self, multiplexer: "Multiplexer", number: "int", sock: "socket.socket") -> "None":
        sock.setblocking(False)
        self._multiplexer = multiplexer
        self._number = number
        self._sock = sock
        self._window = _WINDOW_BYTES
        self._pending = bytearray()
        # Of this connection, and of its peer.
        self._has_ended = False
        self._has_peer_ended = False
        self._is_closed = False
        multiplexer.loop.watch(sock, 0, self._on_events)
        self.watch()

    def watch(self) -> "None":
        if self._is_closed:
            return
        reads = not self._has_ended and self._window > 0 and not self._multiplexer.is_full
        events = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if self._pending else 0)
        self._multiplexer.loop.change(self._sock, events)

    # -- from the connection -------------------------------------------------------------------

    def _on_events(self, events: "int") -> "None":
        if events & selectors.EVENT_READ:
            self._receive()
        if events & selectors.EVENT_WRITE and not self._is_closed:
            self._flush()

    def _receive(self) -> "None":
        try:
            data = self._sock.recv(min(CHUNK_BYTES, self._window))
        except BlockingIOError:
            return
        except OSError:
            self._reset()
            return
        if data:
            self._window -= len(data)
            self._multiplexer.send_frame(self._number, _DATA, data)
        else:
            self._has_ended = True
            self._multiplexer.send_frame(self._number, _END)
        self._finish()

    # -- from the peer -------------------------------------------------------------------------

    def on_data(self, data: "bytes") -> "None":
        if self._has_peer_ended or len(self._pending) + len(data) > _WINDOW_BYTES:
            self._reset()
            return
        self._pending += data
        self._flush()

    def on_end(self) -> "None":
        self._has_peer_ended = True
        self._flush()

    def on_credit(self, count: "int") -> "None":
        self._window = min(self._window + count, _WINDOW_BYTES)
        self.watch()

    def _flush(self) -> "None":
        sent = 0
        try:
            if self._pending:
                sent = self._sock.send(self._pending)
        except BlockingIOError:
            pass
        except OSError:
            self._reset()
            return
        if sent:
            del self._pending[:sent]
            self._multiplexer.send_frame(self._number, _CREDIT, _CREDIT_FIELD.pack(sent))
        if self._has_peer_ended and not self._pending:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the other side has closed it already
        self._finish()

    def _finish(self) -> "None":
        if self._has_ended and self._has_peer_ended and not self._pending:
            self.close()
        else:
            self.watch()

    def _reset(self) -> "None":
        if not self._is_closed:
            self._multiplexer.send_frame(self._number, _RESET)
        self.close()

    def close(self) -> "None":
        if not self._is_closed:
            self._is_closed = True
            self._multiplexer.loop.forget(self._sock)
            self._sock.close()
            self._multiplexer.remove(self._number)
