"""Public keys of users: the list `sshKeys` of a user's extension, as OpenPAI's portal stores it.

A key is added and removed in the transaction that reads the list, so two browsers lose none.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from paicluster.auth import users as accounts
from paicluster.store import users
from paiprotocol.errors import Conflict, InvalidParameters, NotFound

EXTENSION_KEY = "sshKeys"
MAX_KEYS = 64
"""Keys of a user: the SSH endpoint reads as many."""
MAX_KEY_LENGTH = 16 << 10
"""Characters of a line; an RSA key of 16384 bits has 2800."""
MAX_TITLE_LENGTH = 100

_TYPE = re.compile(
    r"ssh-(rsa|ed25519)|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com"
)
_BASE64 = re.compile(r"[A-Za-z0-9+/]{40,}={0,2}")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """``line``: as in `authorized_keys`, that is type, key in base64 and perhaps a comment."""

    line: str
    title: str

    @classmethod
    def parse(cls, line: str, title: str) -> PublicKey:
        line = line.strip()
        if "PRIVATE KEY" in line:
            raise InvalidParameters(
                "This is a private key: keep it to yourself.",
                hint="The public one is in the file that ends in .pub.",
            )
        if len(line) > MAX_KEY_LENGTH or not line.isprintable():
            raise InvalidParameters(f"A public key is one line of at most {MAX_KEY_LENGTH} characters.")
        words = line.split(None, 2)
        if len(words) < 2 or not _TYPE.fullmatch(words[0]) or not _BASE64.fullmatch(words[1]):
            raise InvalidParameters("This is no public key: it begins with its type, like ssh-ed25519.")
        # The comment of a key usually says whose it is.
        named = title.strip() or (words[2] if len(words) > 2 else "") or "key"
        return cls(line, named[:MAX_TITLE_LENGTH])


def add_key(conn: Connection, username: str, key: PublicKey) -> None:
    listed = _listed(conn, username)
    if any(_base64(entry) == key.line.split()[1] for entry in listed):
        raise Conflict("You have this key already.", code="ConflictKeyError")
    if len(listed) >= MAX_KEYS:
        raise InvalidParameters(f"A user has at most {MAX_KEYS} keys.", hint="Remove one first.")
    entry = {"title": key.title, "value": key.line, "time": int(time.time() * 1000)}
    _put(conn, username, [*listed, entry])


def remove_key(conn: Connection, username: str, line: str) -> None:
    """Remove a key, which is found by its base64 part."""
    listed = _listed(conn, username)
    wanted = _base64({"value": line})
    kept = [entry for entry in listed if _base64(entry) != wanted]
    if not wanted or len(kept) == len(listed):
        raise NotFound("There is no such key: it was removed already.", code="NoKeyError")
    _put(conn, username, kept)


def _listed(conn: Connection, username: str) -> list[Any]:
    user = users.get_user(conn, username)
    if user is None:
        raise accounts.user_not_found(username)
    entries = json.loads(user.extension).get(EXTENSION_KEY)
    return entries if isinstance(entries, list) else []


def _base64(entry: Any) -> str:
    """The key of an entry; entries of other programs may be anything."""
    value = entry.get("value") if isinstance(entry, Mapping) else None
    words = value.split() if isinstance(value, str) else []
    return words[1] if len(words) > 1 else ""


def _put(conn: Connection, username: str, entries: list[Any]) -> None:
    user = users.get_user(conn, username)
    assert user is not None
    accounts.merge_extension(conn, user, {EXTENSION_KEY: entries})
