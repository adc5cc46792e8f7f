"""Tokens: payload, lifetime, revocation."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from paicluster.api.v2.job_summaries import render_summary
from paicluster.auth.local_admin import issue_local_admin_token
from paicluster.auth.tokens import LOGIN_S, Tokens, TokensWithLocalAdmin, new_token_row
from paicluster.store import Store, groups, users
from paicluster.store.jobs import NewJob, get_job_by_id, insert_jobs, update_job
from paiprotocol.errors import Unauthorized
from support.prepared_database import prepare_database


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    prepare_database(tmp_path)
    opened = Store.open(tmp_path / "cluster.db", render_summary)
    opened.write_sync(lambda conn: users.add_user(conn, "alice", "hash", created_ms=0))
    opened.write_sync(lambda conn: users.add_user(conn, "root", "hash", created_ms=0, admin=True))
    opened.write_sync(
        lambda conn: insert_jobs(
            conn, [NewJob(user, "job", "default", "", "{}", 0) for user in ("alice", "root")]
        )
    )
    yield opened
    opened.close()


@pytest.fixture
def tokens(store: Store, tmp_path: Path) -> Tokens:
    return Tokens.open(store, tmp_path / "keys")


def payload_of(token: str) -> dict[str, object]:
    part = token.split(".")[1]
    decoded = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    assert isinstance(decoded, dict)
    return decoded


def signed(key: bytes, payload: dict[str, object]) -> str:
    def encode(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    text = encode(b'{"alg":"HS256","typ":"JWT"}') + b"." + encode(json.dumps(payload).encode())
    return (text + b"." + encode(hmac.digest(key, text, hashlib.sha256))).decode()


async def token_of_job(tokens: Tokens, store: Store, job_id: int) -> str:
    job = await store.read(lambda conn: get_job_by_id(conn, job_id))
    assert job is not None
    return tokens.of_job(job)


async def assert_rejected(tokens: Tokens, token: str) -> Unauthorized:
    with pytest.raises(Unauthorized) as raised:
        await tokens.verify(token)
    error = raised.value
    assert (error.status, error.code, str(error)) == (401, "UnauthorizedUserError", "Your token is invalid.")
    return error


def test_token_payload_is_openpais(tokens: Tokens, store: Store) -> None:
    async def main() -> None:
        session = payload_of(await tokens.issue("alice", "session"))
        assert session["username"] == "alice"
        assert (session["application"], session["jobSpecific"]) == (False, False)
        assert session["exp"] == session["iat"] + LOGIN_S  # type: ignore[operator]
        assert abs(float(session["iat"]) - time.time()) < 60  # type: ignore[arg-type]
        application = payload_of(await tokens.issue("alice", "application"))
        assert application["application"] is True
        assert "exp" not in application
        job = await store.read(lambda conn: get_job_by_id(conn, 1))
        assert job is not None
        assert payload_of(tokens.of_job(job))["jobSpecific"] is True

    asyncio.run(main())


def test_token_identifies_its_user(tokens: Tokens) -> None:
    async def main() -> None:
        identity = await tokens.verify(await tokens.issue("alice", "session"))
        assert (identity.username, identity.admin, identity.kind, identity.job_id) == (
            "alice",
            False,
            "session",
            None,
        )
        assert (await tokens.verify(await tokens.issue("root", "application"))).admin is True
        assert (await tokens.verify(await tokens.issue("root", "application"))).kind == "application"

    asyncio.run(main())


def test_job_token_acts_for_its_user_without_admin_rights(tokens: Tokens, store: Store) -> None:
    async def main() -> None:
        identity = await tokens.verify(await token_of_job(tokens, store, 2))
        assert (identity.username, identity.admin, identity.job_id) == ("root", False, 2)

    asyncio.run(main())


def test_token_is_recomputed_from_its_row(tokens: Tokens, store: Store) -> None:
    async def main() -> None:
        issued = [
            await tokens.issue("alice", "session"),
            await tokens.issue("alice", "application", name="ci"),
        ]
        await tokens.issue("root", "session")
        assert sorted(map(tokens.render, await tokens.rows("alice"))) == sorted(issued)

    asyncio.run(main())


def test_forged_tokens_are_rejected(tokens: Tokens) -> None:
    async def main() -> None:
        good = await tokens.issue("alice", "session")
        header, payload, signature = good.split(".")
        forged = base64.urlsafe_b64encode(
            json.dumps({**payload_of(good), "username": "root"}).encode()
        ).decode()
        for token in (
            "",
            "x",
            "a.b.c",
            "ä.ö.ü",
            good + "x",
            good[:-2],
            f"{header}.{payload}.",
            f"{header}.{forged.rstrip('=')}.{signature}",
            signed(b"another key", payload_of(good)),
        ):
            await assert_rejected(tokens, token)
        assert (await tokens.verify(good)).username == "alice"

    asyncio.run(main())


def test_signed_token_without_a_row_is_rejected(tokens: Tokens) -> None:
    async def main() -> None:
        row = new_token_row("alice", "application")
        await assert_rejected(tokens, tokens.render(row))

    asyncio.run(main())


def test_revoked_token_is_rejected_at_once(tokens: Tokens) -> None:
    async def main() -> None:
        token, other = await tokens.issue("alice", "session"), await tokens.issue("alice", "session")
        await tokens.verify(token)
        await tokens.verify(other)
        assert await tokens.revoke(token) is True
        await assert_rejected(tokens, token)
        assert await tokens.revoke(token) is False
        assert await tokens.revoke("nonsense") is False
        assert (await tokens.verify(other)).username == "alice"

    asyncio.run(main())


def test_concurrent_lookup_does_not_cache_a_revoked_token(tokens: Tokens, store: Store) -> None:
    async def main() -> None:
        token = await tokens.issue("alice", "session")
        resume = threading.Event()
        # A lookup that has already read the row must not cache it after the token was revoked.
        loop = asyncio.get_running_loop()
        seen = asyncio.Event()
        original = users.get_token

        def slow(conn: Connection, token_id: str) -> users.TokenRow | None:
            row = original(conn, token_id)
            loop.call_soon_threadsafe(seen.set)
            resume.wait(90)
            return row

        users.get_token = slow  # type: ignore[assignment]
        try:
            verifying = asyncio.ensure_future(tokens.verify(token))
            await seen.wait()
            await tokens.revoke(token)
            resume.set()
            await verifying  # it was valid when it was looked up
        finally:
            users.get_token = original
        await assert_rejected(tokens, token)

    asyncio.run(main())


def test_token_of_a_finished_job_is_rejected(tokens: Tokens, store: Store) -> None:
    async def main() -> None:
        token = await token_of_job(tokens, store, 1)
        await tokens.verify(token)
        await store.write(lambda conn: update_job(conn, 1, sub_state="AttemptRunning"))
        assert (await tokens.verify(token)).job_id == 1
        await store.write(lambda conn: update_job(conn, 1, sub_state="Completed", exit_code=0))
        await assert_rejected(tokens, token)
        await assert_rejected(tokens, await token_of_job(tokens, store, 1))

    asyncio.run(main())


def test_each_job_attempt_has_its_own_token(tokens: Tokens, store: Store) -> None:
    async def main() -> None:
        first = await token_of_job(tokens, store, 1)
        await tokens.verify(first)
        await store.write(lambda conn: update_job(conn, 1, attempt=1))
        await assert_rejected(tokens, first)
        assert (await tokens.verify(await token_of_job(tokens, store, 1))).job_id == 1

    asyncio.run(main())


def test_job_token_of_a_deleted_user_is_rejected(tokens: Tokens, store: Store) -> None:
    async def main() -> None:
        token = await token_of_job(tokens, store, 2)
        await tokens.verify(token)
        await store.write(lambda conn: users.delete_user(conn, "root"))
        await assert_rejected(tokens, token)

    asyncio.run(main())


def test_changed_and_deleted_users_take_effect_at_once(tokens: Tokens, store: Store) -> None:
    async def main() -> None:
        await store.write(lambda conn: users.add_user(conn, "other", "hash", created_ms=0, admin=True))
        token = await tokens.issue("root", "application")
        assert (await tokens.verify(token)).admin is True
        await store.write(lambda conn: users.update_user(conn, "root", admin=False))
        assert (await tokens.verify(token)).admin is False
        await store.write(lambda conn: users.delete_user(conn, "root"))
        await assert_rejected(tokens, token)

    asyncio.run(main())


def test_connections_of_an_administrator_depend_on_that_right(tokens: Tokens, store: Store) -> None:
    """Those into the tasks of other users. A group of many users is touched as a whole."""
    others = [f"user{number}" for number in range(60)]

    def add_group(conn: Connection) -> None:
        groups.add_group(conn, "admins", extension={"acls": {"admin": True}})
        for name in others:
            users.add_user(conn, name, "hash", created_ms=0)
        for name in (*others, "alice"):
            groups.add_member(conn, name, "admins")

    async def main() -> None:
        await store.write(add_group)
        alice = await tokens.verify(await tokens.issue("alice", "session"))
        own, foreign = alice.holders_in_job_of("alice"), alice.holders_in_job_of("root")
        assert await tokens.are_live(own) and await tokens.are_live(foreign)
        changes: list[str] = []
        with tokens.watch_all(foreign[1:], lambda: changes.append("right")):
            await store.write(lambda conn: groups.update_group(conn, "admins", extension={"acls": {}}))
        assert changes
        assert await tokens.are_live(own) and not await tokens.are_live(foreign)
        await store.write(lambda conn: groups.add_member(conn, "alice", groups.ADMINS))
        assert await tokens.are_live(foreign)
        await store.write(lambda conn: users.update_user(conn, "alice", disabled_ms=1))
        assert not await tokens.are_live(own) and not await tokens.are_live(foreign)

    asyncio.run(main())


def test_local_administrator_needs_no_group(store: Store, tmp_path: Path) -> None:
    tokens = TokensWithLocalAdmin.open(store, tmp_path / "keys")

    async def main() -> None:
        admin = await tokens.verify(issue_local_admin_token(tmp_path / "keys", "nemo"))
        assert await tokens.are_live(admin.holders_in_job_of("alice"))

    asyncio.run(main())


def test_session_lifetime_is_configurable(store: Store, tmp_path: Path) -> None:
    async def main() -> None:
        tokens = Tokens.open(store, tmp_path / "keys", login_s=3600)
        payload = payload_of(await tokens.issue("alice", "session"))
        assert int(str(payload["exp"])) - int(str(payload["iat"])) == 3600
        assert "exp" not in payload_of(await tokens.issue("alice", "application"))

    asyncio.run(main())


def test_expired_token_is_rejected_with_a_hint(tokens: Tokens, store: Store) -> None:
    async def main() -> None:
        now_ms = int(time.time() * 1000)
        fresh = new_token_row("alice", "session")
        long_ago = replace(fresh, id="long-ago", expires_ms=now_ms - 1)
        soon = replace(fresh, id="soon", expires_ms=now_ms + 300)
        for row in (long_ago, soon):
            await store.write(lambda conn, row=row: users.add_token(conn, row))  # type: ignore[misc]
        assert "log in again" in (await assert_rejected(tokens, tokens.render(long_ago))).hint
        assert await tokens.rows("alice") in ([soon], [])
        deadline = time.monotonic() + 90
        while True:  # also from the cache
            try:
                await tokens.verify(tokens.render(soon))
            except Unauthorized:
                break
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        removed = await store.write(lambda conn: users.delete_expired(conn, int(time.time() * 1000)))
        assert removed == 2

    asyncio.run(main())


def test_tokens_survive_a_restart(store: Store, tmp_path: Path) -> None:
    async def main() -> None:
        token = await Tokens.open(store, tmp_path / "keys").issue("alice", "session")
        assert (await Tokens.open(store, tmp_path / "keys").verify(token)).username == "alice"
        await assert_rejected(Tokens.open(store, tmp_path / "other-keys"), token)

    asyncio.run(main())


def test_database_contains_no_token(tokens: Tokens, store: Store, tmp_path: Path) -> None:
    token = asyncio.run(tokens.issue("alice", "application"))
    signature = token.rpartition(".")[2].encode()
    for file in tmp_path.glob("cluster.db*"):
        assert signature not in file.read_bytes()
