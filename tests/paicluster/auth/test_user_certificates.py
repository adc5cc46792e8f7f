"""Certificates of users: what ends their logins, and what was opened with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from paicluster.api.v2.job_summaries import render_summary
from paicluster.auth.tokens import Tokens
from paicluster.auth.user_certificates import PresentedCertificate, UserCertificates
from paicluster.auth.users import remove, set_disabled
from paicluster.store import Store, user_records, users
from paicluster.store.user_records import CERTIFICATE, CERTIFICATE_DAYS
from paiprotocol.errors import PaiError
from support.prepared_database import prepare_database


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    prepare_database(tmp_path)
    opened = Store.open(tmp_path / "cluster.db", render_summary)
    opened.write_sync(lambda conn: users.add_user(conn, "alice", "hash", created_ms=0))
    yield opened
    opened.close()


def _remove_and_add_again(conn: Connection) -> None:
    remove(conn, "alice")
    users.add_user(conn, "alice", "hash", created_ms=0)


def _age(conn: Connection) -> None:
    """Let the certificate expire, as TLS sees it only when a connection is opened."""
    (record,) = user_records.list_records(conn, CERTIFICATE, "alice")
    old_ms = int((time.time() - CERTIFICATE_DAYS * 24 * 3600 - 60) * 1000)
    user_records.put_record(conn, record._replace(created_ms=old_ms))


@pytest.mark.parametrize(
    ("change", "is_announced"),
    [
        (lambda conn: set_disabled(conn, "alice", True), True),
        (_remove_and_add_again, True),
        (_age, False),
    ],
    ids=["disabled", "removed", "expired"],
)
def test_certificate_is_refused_and_what_it_opened_ends(
    store: Store, tmp_path: Path, change: Callable[[Connection], object], is_announced: bool
) -> None:
    async def run() -> None:
        certificates = UserCertificates(store, tmp_path / "keys")
        tokens = Tokens.open(store, tmp_path / "keys")
        issued = await certificates.issue("alice")
        presented = PresentedCertificate("alice", issued.serial)
        holder = (await certificates.verify(presented)).token_id
        if is_announced:
            assert await tokens.is_live(holder)
        ended = asyncio.Event()
        with tokens.watch(holder, ended.set):
            await store.write(change)
            if is_announced:
                await ended.wait()
        assert not await tokens.is_live(holder)
        with pytest.raises(PaiError):
            await certificates.verify(presented)

    asyncio.run(run())


def test_revoking_tells_streams_and_leaves_others(store: Store, tmp_path: Path) -> None:
    async def run() -> None:
        store.write_sync(lambda conn: users.add_user(conn, "bob", "hash", created_ms=0))
        certificates = UserCertificates(store, tmp_path / "keys")
        tokens = Tokens.open(store, tmp_path / "keys")
        holders = {}
        for user in ("alice", "bob"):
            issued = await certificates.issue(user)
            presented = PresentedCertificate(user, issued.serial)
            holders[user] = (await certificates.verify(presented)).token_id
            assert await tokens.is_live(holders[user])
        ended = asyncio.Event()
        with tokens.watch(holders["alice"], ended.set):
            assert await certificates.revoke("alice") == 1
            await ended.wait()
        assert [await tokens.is_live(holders[user]) for user in ("alice", "bob")] == [False, True]

    asyncio.run(run())
