"""WebSocket frames (RFC 6455), for the host of a session and for the client of the SDK.

Without extensions and without I/O: bytes in, messages out. Both ends use it, so it imports next to nothing.
"""

import binascii
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs time
    import socket
    from typing import Iterator

VERSION = "13"
TEXT = 1
BINARY = 2
CLOSE = 8
PING = 9
PONG = 10

# Reasons of a close frame.
NORMAL = 1000
PROTOCOL_ERROR = 1002
TOO_LARGE = 1009
BROKEN = 1011

# Of one message: more than any that we send, little enough to keep thousands of connections.
MAX_MESSAGE_BYTES = (1 << 20) + 64

# A key that leaves the data as it is.
NO_MASK = bytes(4)

_CONTINUATION = 0
_FINAL = 0x80
_MASKED = 0x80
_RESERVED = 0x70
_MAX_CONTROL_BYTES = 125
_KEY_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WebSocketError(Exception):
    """The peer broke the protocol. ``code`` is the reason for the close frame."""

    def __init__(self, code: "int", message: "str") -> "None":
        super().__init__(message)
        self.code = code


def new_key() -> "str":
    """Value of ``Sec-WebSocket-Key`` for a request."""
    return binascii.b2a_base64(os.urandom(16)).decode().strip()


def accept_key(key: "str") -> "str":
    """Value of ``Sec-WebSocket-Accept`` in the response to a request with this key."""
    try:
        from _sha1 import sha1  # type: ignore[import-not-found,unused-ignore]  # `hashlib` loads OpenSSL
    except ImportError:
        from hashlib import sha1

    return binascii.b2a_base64(sha1(key.encode() + _KEY_SUFFIX).digest()).decode().strip()


def frame(opcode: "int", payload: "bytes", *, masked: "bool" = False, key: "bytes" = b"") -> "bytes":
    """One message as one frame. Clients send masked frames, servers unmasked ones.

    ``key``: what to mask with, by default random bytes.
    """
    size = len(payload)
    flag = _MASKED if masked else 0
    if size <= _MAX_CONTROL_BYTES:
        head = bytes((_FINAL | opcode, flag | size))
    elif size < 1 << 16:
        head = bytes((_FINAL | opcode, flag | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((_FINAL | opcode, flag | 127)) + size.to_bytes(8, "big")
    if not masked:
        return head + payload
    key = key or os.urandom(4)
    return head + key + mask(payload, key)


def close_frame(code: "int", reason: "str" = "", *, masked: "bool" = False) -> "bytes":
    payload = code.to_bytes(2, "big") + reason.encode()[: _MAX_CONTROL_BYTES - 2]
    return frame(CLOSE, payload, masked=masked)


def key_for(sock: "socket.socket") -> "bytes":
    """Key of a client's frames on a connection; empty for random ones.

    Masks protect proxies that misread what passes through them. Where nothing can read it, inside TLS and
    inside this machine, the key that changes nothing saves most of the time of large frames.
    """
    if hasattr(sock, "getpeercert"):
        return NO_MASK
    try:
        address = sock.getpeername()
    except OSError:
        return b""
    return NO_MASK if address and address[0] in ("127.0.0.1", "::1") else b""


def has_decrypted(sock: "socket.socket") -> "bool":
    """Whether decrypted bytes of a connection wait in its TLS buffer, which no poll reports."""
    return bool(getattr(sock, "pending", int)())


def mask(data: "bytes", key: "bytes") -> "bytes":
    """Data XORed with the repeated key: as two large integers, hundreds of times faster than byte by byte."""
    if key == NO_MASK:
        return data
    size = len(data)
    repeated = key * (size // 4 + 1)
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated[:size], "little")).to_bytes(
        size, "little"
    )


class MessageReader:
    """Messages of a connection, from its bytes in pieces of any size.

    ``masked``: whether the peer must mask its frames, as clients do.
    """

    def __init__(self, *, masked: "bool") -> "None":
        self._masked = masked
        self._buffer = bytearray()
        # Parts of a message that comes in several frames.
        self._opcode = 0
        self._parts = bytearray()

    def feed(self, data: "bytes") -> "Iterator[tuple[int, bytes]]":
        """Opcode and payload of each message that is now complete; control frames come as they are."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while True:
                frame = self._frame(buffer, start)
                if frame is None:
                    return
                start, is_final, opcode, payload = frame
                if opcode >= CLOSE:
                    yield opcode, payload
                    continue
                if (opcode == _CONTINUATION) != bool(self._opcode):
                    raise WebSocketError(PROTOCOL_ERROR, "frames of two messages are mixed")
                if is_final and not self._opcode:
                    yield opcode, payload
                    continue
                self._opcode = self._opcode or opcode
                self._parts += payload
                if len(self._parts) > MAX_MESSAGE_BYTES:
                    raise WebSocketError(TOO_LARGE, "the message is too large")
                if is_final:
                    opcode, self._opcode = self._opcode, 0
                    payload, self._parts = bytes(self._parts), bytearray()
                    yield opcode, payload
        finally:
            del buffer[:start]

    def _frame(self, buffer: "bytearray", at: "int") -> "tuple[int, bool, int, bytes] | None":
        """End, finality, opcode and payload of the frame at this position; None if it is not complete."""
        if len(buffer) - at < 2:
            return None
        first, second = buffer[at], buffer[at + 1]
        opcode, is_final = first & 0x0F, bool(first & _FINAL)
        size, at = second & 0x7F, at + 2
        if first & _RESERVED or opcode not in (_CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG):
            raise WebSocketError(PROTOCOL_ERROR, "the frame has an unknown type")
        if bool(second & _MASKED) != self._masked:
            raise WebSocketError(PROTOCOL_ERROR, "the frame is masked by the wrong side")
        if opcode >= CLOSE and (size > _MAX_CONTROL_BYTES or not is_final):
            raise WebSocketError(PROTOCOL_ERROR, "the control frame is too long")
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(buffer) - at < width:
                return None
            size, at = int.from_bytes(buffer[at : at + width], "big"), at + width
            if size > MAX_MESSAGE_BYTES:
                raise WebSocketError(TOO_LARGE, "the message is too large")
        key = b""
        if self._masked:
            key, at = bytes(buffer[at : at + 4]), at + 4
        if len(buffer) - at < size:
            return None
        with memoryview(buffer) as view:
            payload = bytes(view[at : at + size])
        return at + size, is_final, opcode, mask(payload, key) if key else payload
