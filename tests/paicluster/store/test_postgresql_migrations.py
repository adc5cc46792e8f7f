"""Upgrades of a database of PostgreSQL: in one transaction, to what a new one is; no row is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from alembic import op
from sqlalchemy.exc import DBAPIError

from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store, jobs, schema_version
from paicluster.store.address import DatabaseAddress
from paicluster.store.jobs import NewJob
from paiprotocol.errors import StoreError
from support.databases import new_database
from support.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.service

# The first revision that a database of PostgreSQL can have.
_FIRST = "0015"
# By later revision: statements that undo it. A new migration needs a line here.
_UNDO = {
    "0016": ("ALTER TABLE jobs DROP COLUMN failed_tasks",),
}


@pytest.fixture
def name(postgresql_server: PostgresqlServer) -> Iterator[str]:
    made = new_database(postgresql_server)
    yield made
    postgresql_server.drop_database(made)


def rewind(server: PostgresqlServer, name: str, revision: str) -> None:
    """Give a database the schema of an older revision."""
    for later in reversed(schema_version.REVISIONS[schema_version.REVISIONS.index(revision) + 1 :]):
        for statement in _UNDO[later]:
            server.execute(statement, name)
    server.execute(f"UPDATE alembic_version SET version_num = '{revision}'", name)


def schema_of(server: PostgresqlServer, name: str) -> dict[str, list[tuple[object, ...]]]:
    """Columns, indexes and constraints, without the order of the columns."""
    columns = (
        "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name"
        " FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2"
    )
    indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
    constraints = (
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2"
    )
    texts = {"columns": columns, "indexes": indexes, "constraints": constraints}
    return {what: server.execute(text, name) for what, text in texts.items()}


def test_old_database_becomes_what_a_new_one_is(
    postgresql_server: PostgresqlServer, name: str, new_job: Callable[..., NewJob]
) -> None:
    server = postgresql_server
    address = DatabaseAddress(server.url(name))
    store = Store.open(address, render_summary)
    store.write_sync(lambda conn: jobs.insert_jobs(conn, [new_job("kept")]))
    store.close()
    new = schema_of(server, name)
    rewind(server, name, _FIRST)
    assert schema_of(server, name) != new
    store = Store.open(address, render_summary)
    row = store.read_sync(lambda conn: jobs.get_job(conn, "alice~kept"))
    store.close()
    assert row is not None and row.failed_tasks is None
    assert schema_of(server, name) == new
    assert server.execute("SELECT version_num FROM alembic_version", name) == [(schema_version.HEAD,)]


def test_upgrade_that_fails_changes_nothing(
    postgresql_server: PostgresqlServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = postgresql_server
    rewind(server, name, _FIRST)
    old = schema_of(server, name)
    original = op.add_column

    def add_and_fail(*arguments: object, **options: object) -> None:
        original(*arguments, **options)  # type: ignore[arg-type]
        op.execute("no SQL")

    monkeypatch.setattr(op, "add_column", add_and_fail)
    with pytest.raises((DBAPIError, StoreError)):
        Store.open(DatabaseAddress(server.url(name)))
    assert schema_of(server, name) == old
    monkeypatch.undo()
    Store.open(DatabaseAddress(server.url(name))).close()
    assert schema_of(server, name) != old
