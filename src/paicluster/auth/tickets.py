"""Tickets: short-lived signed permissions for one resource, carried in a URL (for a browser or curl).

A ticket may name its holder: the id of the token that it was issued for. What is streamed with it ends with
that token (`Tokens.is_live`).
"""

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

    def issue(self, resource: str, lifetime_s: int = _LIFETIME_S, *, holder: str = "") -> str:
        expires = int(time.time()) + lifetime_s
        signature = self._sign(_of(resource, holder), expires)
        return f"{expires}.{holder}.{signature}" if holder else f"{expires}.{signature}"

    def is_valid(self, ticket: str, resource: str) -> bool:
        expires, _, signed = ticket.partition(".")
        if not (expires.isascii() and expires.isdigit() and len(expires) < 16) or int(expires) < time.time():
            return False
        expected = self._sign(_of(resource, holder_of(ticket)), int(expires))
        return hmac.compare_digest(signed.rpartition(".")[2].encode(), expected.encode())

    def _sign(self, resource: str, expires: int) -> str:
        return hmac.digest(self._key, f"{expires}:{resource}".encode(), hashlib.sha256).hex()[:32]


def holder_of(ticket: str) -> str:
    """Holder of a valid ticket; empty without one."""
    return ticket.partition(".")[2].rpartition(".")[0]


def _of(resource: str, holder: str) -> str:
    return f"{resource} of {holder}" if holder else resource
