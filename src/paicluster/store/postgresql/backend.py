"""PostgreSQL as the store's backend.

One connection writes, as with SQLite; it holds a lock of the session (an advisory lock), so that no other
server writes to the same database. When it is lost, the writer opens another one, gets the lock again, and
looks up whether the transaction was committed whose commit was not answered; otherwise it is repeated.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from paicluster.store import dialect_sql, integrity, new_database, schema_version
from paicluster.store.address import DatabaseAddress
from paicluster.store.backend import WriterRecovery
from paicluster.store.compiled_statements import execute
from paicluster.store.postgresql import connections
from paicluster.store.postgresql.errors import Failure, as_pai_error, failure_of, unreachable
from paicluster.store.postgresql.sql import OWNER_TABLE, PostgresqlSql
from paicluster.store.tables import metadata
from paiprotocol.errors import PaiError, StoreError

dialect_sql.register("postgresql", PostgresqlSql())

_log = logging.getLogger("paicluster.store")

# How long requests wait for a database that does not answer. After that they fail at once until it does.
_RETRY_WINDOW_S = 10.0
_RETRY_INTERVAL_S = 0.2
# A server that was killed holds its lock until the database notices.
_LOCK_TIMEOUT_S = 20.0
# How often a transaction is repeated: after a conflict; after a lost connection, which it may cause itself.
_MAX_CONFLICTS = 10
_MAX_LOSSES = 3
# Of the lock that the server of a cluster holds: one for each schema.
_LOCK = "hashtextextended('paicluster ' || current_schema(), 0)"


class TakenOver(BaseException):
    """Another server has used the database since: what this one has in memory is out of date.

    No `Exception`: the process must end.
    """


class PostgresqlBackend:
    """A database of a PostgreSQL server."""

    begin = staticmethod(connections.begin)
    commit = staticmethod(connections.commit)
    rollback = staticmethod(connections.rollback)
    discard = staticmethod(connections.discard)
    transaction_lost = staticmethod(connections.transaction_lost)

    def __init__(
        self,
        address: DatabaseAddress,
        *,
        retry_window_s: float = _RETRY_WINDOW_S,
        lock_timeout_s: float = _LOCK_TIMEOUT_S,
    ) -> None:
        self.name = str(address)
        self._address = address
        self._engine = connections.make_engine(address)
        self._retry_window_s = retry_window_s
        self._lock_timeout_s = lock_timeout_s
        # Since when the database has not answered, if it does not.
        self._down_since: float | None = None
        self._owner = uuid.uuid4().hex

    # -- life -------------------------------------------------------------------------------------

    def open(self) -> Connection:
        conn: Connection | None = None
        try:
            conn = connections.open_writer(self._engine)
            self._lock(conn)
            self._migrate(conn)
            execute(conn, f"UPDATE {OWNER_TABLE} SET owner = ?", (self._owner,)).close()
        except Exception as error:
            if conn is not None:
                connections.discard(conn)  # and the lock with it
            self._engine.dispose()
            failure = self.as_pai_error(error)
            if failure is None:
                raise
            raise failure from None
        return conn

    def closing(self) -> None:
        pass

    def close(self) -> None:
        self._engine.dispose()

    def _migrate(self, conn: Connection) -> None:
        # Each search path has its own tables: one database can hold several clusters in schemas of their own.
        tables = self._tables(conn)
        revision = schema_version.revision_of(conn, tables, self.name)
        if revision is None:
            if not self._address.may_create:
                raise StoreError(
                    f"The cluster's database {self.name} is empty, though the cluster was used before.",
                    hint="Copy the jobs and users of its old database: paicluster migrate-store; or restore "
                    "it from a backup.",
                )
            _create(conn)
        elif revision != schema_version.HEAD:
            from paicluster.store.migrations.upgrade import upgrade

            _log.info("Upgrading the database %s from schema %s", self.name, revision)
            upgrade(conn, schema_version.HEAD)
        if missing := integrity.missing_part(self._tables(conn), metadata):
            raise StoreError(
                f"The cluster's database {self.name} is damaged ({missing}).",
                hint="Restore it from a backup.",
            )

    def _tables(self, conn: Connection) -> dict[str, set[str]]:
        """Columns of each table."""
        text = (
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema()"
        )
        columns: dict[str, set[str]] = {}
        for table, column in execute(conn, text).fetchall():
            columns.setdefault(table, set()).add(column)
        return columns

    def _lock(self, conn: Connection) -> None:
        ends = time.monotonic() + self._lock_timeout_s
        while True:
            row = execute(conn, f"SELECT pg_try_advisory_lock({_LOCK})").fetchone()
            if row is not None and row[0]:
                return
            if time.monotonic() > ends:
                raise StoreError(
                    f"Another server uses the cluster's database {self.name}.",
                    status=503,
                    hint="Stop it first. It holds the advisory lock: SELECT * FROM pg_locks WHERE locktype = "
                    "'advisory'",
                )
            time.sleep(_RETRY_INTERVAL_S)

    # -- connections ------------------------------------------------------------------------------

    def open_reader(self) -> Connection:
        return self._with_retries(lambda: connections.open_reader(self._engine))

    def open_inline_reader(self) -> Connection:
        return connections.open_reader(self._engine)

    def wake_reader(self, conn: Connection) -> None:
        pass

    def rest_reader(self, conn: Connection) -> None:
        pass

    def _with_retries(self, connect: Callable[[], Connection]) -> Connection:
        """Connect; when the database ceases to answer, try for some seconds, later only once."""
        while True:
            try:
                conn = connect()
            except Exception as error:
                if failure_of(error) is None:
                    raise
                now = time.monotonic()
                if self._down_since is None:
                    self._down_since = now
                    _log.warning("The database %s does not answer: %s", self.name, error)
                if now - self._down_since >= self._retry_window_s:
                    raise
                time.sleep(_RETRY_INTERVAL_S)
                continue
            if self._down_since is not None:
                self._down_since = None
                _log.warning("The database %s answers again", self.name)
            return conn

    # -- transactions -----------------------------------------------------------------------------

    def probe(self, conn: Connection) -> None:
        execute(conn, f"UPDATE {OWNER_TABLE} SET owner = owner").close()

    # -- failures ---------------------------------------------------------------------------------

    def as_pai_error(self, error: BaseException) -> PaiError | None:
        return as_pai_error(error, self._address)

    def is_passing(self, error: BaseException) -> bool:
        return failure_of(error) is not None

    def recover_writer(self, conn: Connection, error: BaseException, attempt: int) -> WriterRecovery | None:
        if failure_of(error) is Failure.CONFLICT and not connections.is_lost(conn):
            if attempt > _MAX_CONFLICTS:
                return None
            time.sleep(random.uniform(0, 0.005) * attempt)
            return WriterRecovery(conn, is_committed=False)
        number = connections.transaction_in_commit(conn)
        # Whatever is left of it holds the lock.
        connections.close_driver(conn)
        new = self._with_retries(self._reopen_writer)
        connections.discard(conn)
        if number is not None:
            return WriterRecovery(new, is_committed=self._is_committed(new, number))
        return WriterRecovery(new, is_committed=False) if attempt <= _MAX_LOSSES else None

    def _reopen_writer(self) -> Connection:
        conn = connections.open_writer(self._engine)
        try:
            self._lock(conn)
            self._check_owner(conn)
        except BaseException:
            connections.discard(conn)
            raise
        return conn

    def _check_owner(self, conn: Connection) -> None:
        row = execute(conn, f"SELECT owner FROM {OWNER_TABLE}").fetchone()
        if row is None or row[0] != self._owner:
            raise TakenOver(f"another server has used the database {self.name} since")

    def _is_committed(self, conn: Connection, number: str) -> bool:
        """Whether a transaction was committed, of which that is unknown. It may still be under way."""
        ends = time.monotonic() + self._retry_window_s
        while True:
            row = execute(conn, "SELECT pg_xact_status(?::xid8)", (number,)).fetchone()
            status = None if row is None else row[0]
            if status in ("committed", "aborted"):
                return bool(status == "committed")
            if status is None or time.monotonic() > ends:
                raise unreachable(self._address, "whether the last changes were stored is unknown")
            time.sleep(_RETRY_INTERVAL_S)


def _create(conn: Connection) -> None:
    try:
        with conn.begin():
            conn.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except DBAPIError as error:
        if failure_of(error) is not None:
            raise
        reason = str(error.orig).strip().splitlines()[0]
        raise StoreError(
            f"The extension pg_trgm could not be added to the database ({reason}).",
            hint="Let an administrator of the database server type: CREATE EXTENSION pg_trgm; on Debian it "
            "is part of the package postgresql, elsewhere of postgresql-contrib.",
        ) from None
    new_database.create(conn, schema_version.HEAD)
