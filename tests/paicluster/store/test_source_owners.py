"""Owners of source archives: added twice, by removed users, removed with archive and user."""

from __future__ import annotations

from pathlib import Path

from paicluster.store import Store, source_owners, users
from paicluster.store.address import DatabaseAddress


def test_owners_of_archives(database: Path | DatabaseAddress) -> None:
    store = Store.open(database)
    try:
        for user in ("alice", "bob"):
            store.write_sync(lambda conn, user=user: users.add_user(conn, user, "hash", created_ms=1))  # type: ignore[misc]
        for sha256, user in (("a", "alice"), ("a", "alice"), ("a", "bob"), ("b", "bob"), ("a", "removed")):
            store.write_sync(lambda conn, s=sha256, u=user: source_owners.add_owner(conn, s, u))  # type: ignore[misc]
        owned = {
            user: store.read_sync(lambda conn, user=user: source_owners.archives_of(conn, user))  # type: ignore[misc]
            for user in ("alice", "bob", "removed")
        }
        assert owned == {"alice": ["a"], "bob": ["a", "b"], "removed": []}
        store.write_sync(lambda conn: source_owners.forget_archive(conn, "a"))
        assert not store.read_sync(lambda conn: source_owners.is_owner(conn, "a", "bob"))
        assert store.read_sync(lambda conn: source_owners.is_owner(conn, "b", "bob"))
        store.write_sync(lambda conn: users.delete_user(conn, "bob"))
        assert not store.read_sync(lambda conn: source_owners.is_owner(conn, "b", "bob"))
    finally:
        store.close()
