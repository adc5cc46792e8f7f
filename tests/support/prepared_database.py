"""Databases of clusters that were never started, with users: made once per process, then copied.

Creating the tables takes longer than many a test that needs them.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from paicluster.store import Store, users

_SALT = b"no secret is here"


def prepare_database(
    home: Path, names: Sequence[str] = (), *, admins: Sequence[str] = (), password: str = ""
) -> None:
    """Create the home's database with these users, who have one password."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = home / "cluster.db"
    database.touch(mode=0o600)
    database.write_bytes(_content(tuple(names), tuple(admins), password))


@cache
def _content(names: tuple[str, ...], admins: tuple[str, ...], password: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.db"
        store = Store.open(path)
        hashed = _quick_hash(password)
        for name in names:
            admin = name in admins
            store.write_sync(
                lambda conn, n=name, a=admin: users.add_user(conn, n, hashed, created_ms=0, admin=a)
            )
        store.close()
        assert not list(path.parent.glob("*-wal")), "the database is in one file"
        return path.read_bytes()


def _quick_hash(password: str) -> str:
    """As `hash_password` writes it, with parameters that make every login of a test quick."""
    n, r, p = 16, 8, 1
    digest = hashlib.scrypt(password.encode(), salt=_SALT, n=n, r=r, p=p, dklen=32)
    salt, hashed = (base64.b64encode(data).decode() for data in (_SALT, digest))
    return f"scrypt${n},{r},{p}${salt}${hashed}"
