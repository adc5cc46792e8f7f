"""Codec of the cluster's tokens in Hadoop's token format: Writables, URL-safe base64."""

from __future__ import annotations

import base64
import binascii
import struct

_KIND = "WEBHDFS delegation"
_KIND_TLS = "SWEBHDFS delegation"


def encode(token: str, owner: str, renewer: str, issued_ms: int, expires_ms: int, url: str) -> str:
    """Encode a token: it becomes the password of a Hadoop token; the other fields are informative."""
    scheme, _, service = url.partition("://")
    identifier = b"\0" + b"".join(
        (
            _text(owner),
            _text(renewer),
            _text(""),
            _number(issued_ms),
            _number(expires_ms),
            _number(0),
            _number(0),
        )
    )
    kind = _KIND_TLS if scheme == "https" else _KIND
    data = _bytes(identifier) + _bytes(token.encode()) + _text(kind) + _text(service.partition("/")[0])
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> str:
    """The cluster's token from what a client sent: itself, or in a Hadoop token.

    Empty if it cannot be decoded.
    """
    if text.count(".") == 2:
        return text
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        start, size = _read_number(data, 0)
        start, size = _read_number(data, start + size)
        return data[start : start + size].decode("ascii")
    except (ValueError, IndexError, struct.error, binascii.Error):
        return ""


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _bytes(data: bytes) -> bytes:
    return _number(len(data)) + data


def _number(value: int) -> bytes:
    """Hadoop's variable-length integer; never negative here."""
    if value <= 127:
        return struct.pack("b", value)
    size = (value.bit_length() + 7) // 8
    return struct.pack("b", -112 - size) + value.to_bytes(size, "big")


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """Offset after the integer, and its value."""
    first = struct.unpack_from("b", data, at)[0]
    if first >= -112:
        return at + 1, max(first, 0)
    size = -112 - first
    if size > 8:
        raise ValueError("a negative length")
    return at + 1 + size, int.from_bytes(data[at + 1 : at + 1 + size], "big")
