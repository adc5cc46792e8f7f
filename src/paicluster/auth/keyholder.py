"""Whoever can read the cluster's keys is its administrator, and says so with a token he makes himself.

The administrator's commands talk to a running server so. Such a token has no row: it holds for two minutes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from pathlib import Path

from paicluster.auth.key_files import read_key

LIFETIME_S = 120
MARK = "keyholder"


def issue_local_admin_token(keys: Path, username: str) -> str:
    """A token for an administrator of this name, from the keys in that folder."""
    now = int(time.time())
    said = {
        "username": username,
        "application": False,
        "jobSpecific": False,
        MARK: True,
        "jti": f"{MARK}-{secrets.token_urlsafe(12)}",
        "iat": now,
        "exp": now + LIFETIME_S,
    }
    head = {"alg": "HS256", "typ": "JWT"}
    signed = b".".join(_encode(json.dumps(part, separators=(",", ":")).encode()) for part in (head, said))
    key = read_key(keys, "tokens")
    return (signed + b"." + _encode(hmac.digest(key, signed, hashlib.sha256))).decode()


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
