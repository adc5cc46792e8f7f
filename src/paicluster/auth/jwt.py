"""JSON Web Tokens (HS256), encoded and decoded with the standard library."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping


def encode(payload: Mapping[str, object], key: bytes) -> str:
    signed = _HEADER + b"." + _base64(json.dumps(payload, separators=(",", ":")).encode())
    return (signed + b"." + _signature(signed, key)).decode()


def decode(token: str, key: bytes) -> dict[str, object] | None:
    """The payload, if the signature is valid; None otherwise. Does not check expiry."""
    try:
        signed, _, signature = token.encode("ascii").rpartition(b".")
        if not hmac.compare_digest(_signature(signed, key), signature):
            return None
        payload = json.loads(_unbase64(signed.partition(b".")[2]))
    except ValueError:
        return None
    return payload if isinstance(payload, dict) else None


def _signature(signed: bytes, key: bytes) -> bytes:
    return _base64(hmac.digest(key, signed, hashlib.sha256))


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _unbase64(data: bytes) -> bytes:
    try:
        return base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    except binascii.Error as error:
        raise ValueError("not base64") from error


_HEADER = _base64(b'{"alg":"HS256","typ":"JWT"}')
