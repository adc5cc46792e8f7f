"""Login and the first administrator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.auth.tokens import Tokens
from paicluster.auth.users import create, ensure_admin, login, set_password
from paicluster.store import Store, groups, users
from paiprotocol.errors import ConfigError, Conflict, PaiError, Unauthorized
from support.prepared_database import prepare_database


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    prepare_database(tmp_path)
    opened = Store.open(tmp_path / "cluster.db")
    yield opened
    opened.close()


def failure(store: Store, username: str, password: str) -> tuple[int, str, str]:
    with pytest.raises(PaiError) as raised:
        asyncio.run(login(store, username, password))
    return raised.value.status, raised.value.code, str(raised.value)


def test_first_start_creates_admin_with_generated_password(store: Store) -> None:
    password = ensure_admin(store, None)
    assert password is not None
    assert len(password) >= 12
    user = asyncio.run(login(store, "admin", password))
    assert user.admin is True
    assert ensure_admin(store, None) is None
    assert ensure_admin(store, "another one") is None
    assert asyncio.run(login(store, "admin", password)) == user


def test_admin_password_from_the_environment_is_not_printed(store: Store) -> None:
    assert ensure_admin(store, "from the environment") is None
    assert asyncio.run(login(store, "admin", "from the environment")).username == "admin"


def test_short_password_is_rejected_before_any_write(store: Store) -> None:
    with pytest.raises(ConfigError, match="at least 6"):
        ensure_admin(store, "12345")
    assert store.read_sync(users.list_users) == []


def test_password_that_is_not_utf8_is_rejected_before_any_write(store: Store) -> None:
    with pytest.raises(ConfigError, match="UTF-8"):
        ensure_admin(store, b"from \xff elsewhere".decode(errors="surrogateescape"))
    assert store.read_sync(users.list_users) == []


def test_failed_login_has_openpais_errors(store: Store) -> None:
    ensure_admin(store, "secret")
    assert failure(store, "nobody", "secret") == (400, "NoUserError", "User nobody is not found.")
    assert failure(store, "admin", "Secret") == (400, "IncorrectPasswordError", "Password is incorrect.")


def test_new_password_ends_sessions_but_not_application_tokens(store: Store, tmp_path: Path) -> None:
    ensure_admin(store, "secret")

    async def main() -> None:
        tokens = Tokens.open(store, tmp_path / "keys")
        session, application = (
            await tokens.issue("admin", "session"),
            await tokens.issue("admin", "application"),
        )
        await tokens.verify(session)
        assert await set_password(store, "admin", "changed") is True
        with pytest.raises(Unauthorized):
            await tokens.verify(session)
        assert (await tokens.verify(application)).username == "admin"
        assert await set_password(store, "nobody", "changed") is False

    asyncio.run(main())
    assert failure(store, "admin", "secret")[1] == "IncorrectPasswordError"
    assert asyncio.run(login(store, "admin", "changed")).username == "admin"


def test_user_and_group_names_do_not_overlap(store: Store) -> None:
    store.write_sync(lambda conn: groups.add_group(conn, "vision"))
    asyncio.run(create(store, "bob", "secret"))
    for attempt, code in (
        (lambda: asyncio.run(create(store, "vision", "secret")), "ConflictUserError"),
        (lambda: asyncio.run(create(store, "default", "secret")), "ConflictUserError"),
        (lambda: store.write_sync(lambda conn: groups.add_group(conn, "bob")), "ConflictGroupError"),
    ):
        with pytest.raises(Conflict) as raised:
            attempt()
        assert raised.value.code == code


def test_user_names_are_unique(store: Store) -> None:
    store.write_sync(
        lambda conn: users.add_user(conn, "bob", "hash", created_ms=1, email="b@x", extension='{"a":1}')
    )
    with pytest.raises(Conflict) as raised:
        store.write_sync(lambda conn: users.add_user(conn, "bob", "other", created_ms=2))
    assert raised.value.code == "ConflictUserError"
    assert store.write_sync(lambda conn: users.update_user(conn, "bob", email="c@x")) is True
    assert store.write_sync(lambda conn: users.update_user(conn, "eve", email="c@x")) is False
    (bob,) = store.read_sync(users.list_users)
    assert (bob.email, bob.admin, bob.extension, bob.password_hash) == ("c@x", False, '{"a":1}', "hash")
    assert store.write_sync(lambda conn: users.delete_user(conn, "bob")) is True
    assert store.write_sync(lambda conn: users.delete_user(conn, "bob")) is False
