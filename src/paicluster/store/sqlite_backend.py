"""SQLite as the store's backend: a file in the home, checked after a crash, upgraded at the start."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from paicluster.store import dialect_sql, integrity, schema_version, sqlite, tables
from paicluster.store.backend import WriterRecovery
from paicluster.store.sqlite_sql import SqliteSql
from paiprotocol.errors import PaiError

dialect_sql.register("sqlite", SqliteSql())


class SqliteBackend:
    """A database in a file."""

    begin = staticmethod(sqlite.begin)
    commit = staticmethod(sqlite.commit)
    rollback = staticmethod(sqlite.rollback)
    transaction_lost = staticmethod(sqlite.transaction_lost)
    probe = staticmethod(sqlite.rewrite_page)
    wake_reader = staticmethod(sqlite.map_file)

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._engine = sqlite.make_engine(path)

    def open(self) -> Connection:
        path = self._path
        is_new = True
        try:
            sqlite.make_file(path)
            marker = integrity.ShutdownMarker(path)
            is_new = not path.stat().st_size
            if not marker.is_clean():
                integrity.check_log(path, marker)
                integrity.quick_check(path)
            conn = sqlite.open_writer(self._engine)
            sqlite.probe_writable(conn)
            schema_version.migrate(conn, path)
            integrity.check_schema(conn, path, tables.metadata)
            marker.opened()
        except Exception as error:
            self._engine.dispose()
            failure = sqlite.as_store_error(error, path)
            if failure is None and not is_new and isinstance(error, sqlite3.Error | DBAPIError):
                failure = sqlite.damaged(path, str(getattr(error, "orig", error)))
            if failure is None:
                raise
            raise failure from None
        self._marker = marker
        return conn

    def closing(self) -> None:
        # The writer's connection closes last: that checkpoints the write-ahead log and removes it.
        self._marker.closing()

    def close(self) -> None:
        self._engine.dispose()
        self._marker.closed()

    def open_reader(self) -> Connection:
        return sqlite.open_reader(self._engine)

    def open_inline_reader(self) -> Connection:
        return sqlite.open_inline_reader(self._engine)

    def discard(self, conn: Connection) -> None:
        conn.close()

    def rest_reader(self, conn: Connection) -> None:
        sqlite.release_memory(conn)
        _trim()

    def as_pai_error(self, error: BaseException) -> PaiError | None:
        return sqlite.as_store_error(error, self._path)

    def is_passing(self, error: BaseException) -> bool:
        return False

    def recover_writer(self, conn: Connection, error: BaseException, attempt: int) -> WriterRecovery | None:
        return None


def _trim() -> None:
    """Return freed memory of the C library to the system: a page of a listing is megabytes."""
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass  # not glibc
