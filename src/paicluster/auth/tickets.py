"""Tickets: short-lived signed permissions for one resource, carried in a URL (for a browser or curl)."""

from __future__ import annotations

import hashlib
import hmac
import time
from pathlib import Path

from paicluster.auth.key_files import load_key

_LIFETIME_S = 120


class Tickets:
    """Issues and checks tickets."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def open(cls, keys: Path) -> Tickets:
        return cls(load_key(keys, "tickets"))

    def issue(self, resource: str, lifetime_s: int = _LIFETIME_S) -> str:
        expires = int(time.time()) + lifetime_s
        return f"{expires}.{self._sign(resource, expires)}"

    def is_valid(self, ticket: str, resource: str) -> bool:
        expires, _, signature = ticket.partition(".")
        if not (expires.isascii() and expires.isdigit() and len(expires) < 16) or int(expires) < time.time():
            return False
        return hmac.compare_digest(signature.encode(), self._sign(resource, int(expires)).encode())

    def _sign(self, resource: str, expires: int) -> str:
        return hmac.digest(self._key, f"{expires}:{resource}".encode(), hashlib.sha256).hex()[:32]
