"""Lost connections, deadlocks and a second server, with a real PostgreSQL: nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import Connection

from paicluster.store import Store, users
from paicluster.store.address import DatabaseAddress
from paicluster.store.compiled_statements import execute
from paicluster.store.postgresql import connections
from paicluster.store.postgresql.backend import PostgresqlBackend, TakenOver
from paicluster.store.users import add_user, list_users, update_user
from paiprotocol.errors import InvalidParameters, StoreError
from support.databases import new_database
from support.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.service


@pytest.fixture
def name(postgresql_server: PostgresqlServer) -> Iterator[str]:
    made = new_database(postgresql_server)
    yield made
    postgresql_server.drop_database(made)


@pytest.fixture
def store(postgresql_server: PostgresqlServer, name: str) -> Iterator[Store]:
    opened = Store.open(DatabaseAddress(postgresql_server.url(name)))
    yield opened
    opened.close()


def disconnect(server: PostgresqlServer, name: str) -> None:
    """End all sessions of a database, as a restart of the server does."""
    server.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'")


def names(store: Store) -> list[str]:
    return [user.username for user in store.read_sync(list_users)]


def test_idle_connections_that_were_lost_are_opened_again(
    store: Store, postgresql_server: PostgresqlServer, name: str
) -> None:
    store.write_sync(lambda conn: add_user(conn, "alice", "hash", created_ms=0))
    assert store.read_inline(users.count_users) == 1
    assert names(store) == ["alice"]
    disconnect(postgresql_server, name)
    store.write_sync(lambda conn: add_user(conn, "bob", "hash", created_ms=0))
    assert names(store) == ["alice", "bob"]
    assert store.read_inline(users.count_users) == 2


def test_transaction_that_lost_its_connection_is_repeated_once(
    store: Store, postgresql_server: PostgresqlServer, name: str
) -> None:
    calls: list[str] = []

    def add(conn: Connection) -> None:
        add_user(conn, "alice", "hash", created_ms=0)
        calls.append("alice")
        if len(calls) == 1:
            disconnect(postgresql_server, name)
        add_user(conn, "bob", "hash", created_ms=0)

    async def main() -> None:
        others = [
            store.write(lambda conn, n=n: add_user(conn, f"user{n}", "hash", created_ms=0)) for n in range(3)
        ]
        await asyncio.gather(store.write(add), *others)

    asyncio.run(main())
    assert len(calls) == 2
    assert names(store) == ["alice", "bob", "user0", "user1", "user2"]


@pytest.mark.parametrize("is_stored", [True, False])
def test_commit_without_an_answer_is_looked_up(
    postgresql_server: PostgresqlServer, name: str, is_stored: bool
) -> None:
    class Unanswered(PostgresqlBackend):
        """Loses its connection during the first commit after `arm`."""

        is_armed = False

        def commit(self, conn: Connection) -> None:  # type: ignore[override]
            if not self.is_armed:
                connections.commit(conn)
                return
            self.is_armed = False
            raw = connections.raw_connection(conn)
            conn.info[connections.COMMITTING] = True
            if is_stored:
                raw.execute("COMMIT")
            raw.close()
            raise psycopg.OperationalError("the connection is lost")

    backend = Unanswered(DatabaseAddress(postgresql_server.url(name)))
    store = Store(backend, backend.open(), lambda job: "")
    seen: list[str] = []
    store.changes.subscribe_tokens(seen.append)
    calls: list[None] = []

    def add(conn: Connection) -> str:
        calls.append(None)
        add_user(conn, "alice", "hash", created_ms=0)
        return "added"

    backend.is_armed = True
    assert store.write_sync(add) == "added"
    assert names(store) == ["alice"]
    assert len(calls) == (1 if is_stored else 2)
    assert "@alice" in seen
    store.close()


def test_deadlock_is_repeated(store: Store, postgresql_server: PostgresqlServer, name: str) -> None:
    for user in ("alice", "bob"):
        store.write_sync(lambda conn, user=user: add_user(conn, user, "hash", created_ms=0))
    text = "UPDATE users SET email = 'other' WHERE username = '{}'"
    locked, calls = threading.Event(), []

    def other() -> None:
        with psycopg.connect(postgresql_server.url(name)) as conn:
            # The store is the one that is rolled back: it notices first.
            conn.execute("SET deadlock_timeout = '60s'")
            conn.execute(text.format("bob"))  # type: ignore[arg-type]
            locked.set()
            assert is_locked.wait(90)
            conn.execute(text.format("alice"))  # type: ignore[arg-type]

    is_locked = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    assert locked.wait(90)

    def both(conn: Connection) -> None:
        calls.append(None)
        update_user(conn, "alice", email="ours")
        is_locked.set()
        update_user(conn, "bob", email="ours")

    store.write_sync(both)
    thread.join()
    assert len(calls) == 2
    assert {user.email for user in store.read_sync(list_users)} == {"ours"}


def test_server_whose_database_another_one_has_used_ends(
    postgresql_server: PostgresqlServer, name: str
) -> None:
    address = DatabaseAddress(postgresql_server.url(name))
    first = PostgresqlBackend(address)
    conn = first.open()
    with pytest.raises(StoreError, match="Another server uses"):
        PostgresqlBackend(address, lock_timeout_s=0.1).open()
    disconnect(postgresql_server, name)
    second = PostgresqlBackend(address)
    connections.discard(second.open())
    with pytest.raises(psycopg.OperationalError) as lost:
        first.begin(conn)
    with pytest.raises(TakenOver):
        first.recover_writer(conn, lost.value, 1)
    for backend in (first, second):
        backend.close()


def test_writes_go_on_after_a_commit_that_failed(
    store: Store, postgresql_server: PostgresqlServer, name: str
) -> None:
    """Here for a constraint that is checked at the commit: the connection is not lost."""
    postgresql_server.execute("CREATE TABLE late (n INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED)", name)

    def add_twice(conn: Connection) -> None:
        add_user(conn, "alice", "hash", created_ms=0)
        execute(conn, "INSERT INTO late VALUES (1), (1)").close()

    with pytest.raises(StoreError, match="late_n_key"):
        store.write_sync(add_twice)
    store.write_sync(lambda conn: add_user(conn, "bob", "hash", created_ms=0))
    assert names(store) == ["bob"]


def test_text_that_cannot_be_stored_fails_its_own_write_only(store: Store) -> None:
    async def main() -> list[object]:
        writes = [
            store.write(lambda conn, user=user: add_user(conn, user, "hash", created_ms=0))
            for user in ("alice", "b\0b", "carol")
        ]
        return await asyncio.gather(*writes, return_exceptions=True)

    _, failed, _ = asyncio.run(main())
    assert isinstance(failed, InvalidParameters)
    assert names(store) == ["alice", "carol"]


def test_text_that_cannot_be_stored_is_not_found(store: Store) -> None:
    assert store.read_sync(lambda conn: users.get_user(conn, "b\0b")) is None
    assert store.read_inline(lambda conn: users.get_user(conn, "b\0b")) is None


def test_commits_are_durable_whatever_the_default_is(postgresql_server: PostgresqlServer, name: str) -> None:
    postgresql_server.execute(f"ALTER DATABASE {name} SET synchronous_commit = 'off'")
    store = Store.open(DatabaseAddress(postgresql_server.url(name)))
    show = "SHOW synchronous_commit"
    assert store.write_sync(lambda conn: execute(conn, show).fetchone()) == ("on",)
    store.close()
