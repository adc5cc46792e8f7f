"""Everything that is SQLite's own: how a connection is set up, what its errors mean to a person, a backup.

With PostgreSQL this file is replaced; the others stay.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from openpaisdk.errors import StoreError

# How long another program (a backup, someone's sqlite3 shell) may hold the lock before we speak of it.
BUSY_SECONDS = 30.0

# As much of the database as a reader looks at in place; beyond it pages are read one by one.
_MAPPED = 1 << 30

# The column "summary" of all rows as one array of bytes; as text it would be copied twice more on its way.
CONCATENATED = "CAST(group_concat(summary, ',') AS BLOB)"

# The largest id a job ever had, also when that job is gone.
LAST_JOB_ID = "SELECT seq FROM sqlite_sequence WHERE name = 'jobs'"

_OLDEST = (3, 35)

# About what SQLite takes, with the names of what it puts beside the database.
_LONG_PATH = 500

_WRITER = "paicluster_writer"


def make_engine(path: Path) -> Engine:
    """An engine whose transactions we begin ourselves: the driver's own idea of BEGIN is off."""

    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreError(
            f"SQLite {'.'.join(map(str, _OLDEST))} or newer is needed; this is {sqlite3.sqlite_version}."
        )

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            path,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )

    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=NullPool)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(conn: Connection) -> None:
    # SQLAlchemy begins a transaction at its first statement; ours may be running already.
    if not raw_connection(conn).in_transaction:
        begin(conn)


def begin(conn: Connection) -> None:
    """Begin a transaction. A writer takes the lock at once: taken halfway through it could be refused."""
    raw_connection(conn).execute("BEGIN IMMEDIATE" if conn.get_execution_options().get(_WRITER) else "BEGIN")


def commit(conn: Connection) -> None:
    """End the transaction, whether or not SQLAlchemy has noticed it."""
    if conn.in_transaction():
        conn.commit()
    else:
        raw_connection(conn).commit()


def rollback(conn: Connection) -> None:
    if conn.in_transaction():
        conn.rollback()
    raw_connection(conn).rollback()


def make_file(path: Path) -> None:
    """Make the file when it is not there: readable by us alone, and with it what SQLite puts beside it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _full(path) from None
        raise _cannot_open(path) from None


def open_writer(engine: Engine) -> Connection:
    conn = engine.connect().execution_options(**{_WRITER: True})
    raw = raw_connection(conn)
    raw.execute("PRAGMA journal_mode=WAL")
    raw.execute("PRAGMA synchronous=FULL")
    raw.execute("PRAGMA foreign_keys=ON")
    # A page that changes often is copied out of the log once in so many pages, not each time.
    raw.execute("PRAGMA wal_autocheckpoint=4000")
    # After a burst the log file is cut back to this, so that it does not keep its largest size for ever.
    raw.execute("PRAGMA journal_size_limit=16777216")
    return conn


def open_reader(engine: Engine) -> Connection:
    conn = engine.connect()
    raw_connection(conn).execute("PRAGMA query_only=ON")
    return conn


def open_glancing(engine: Engine) -> Connection:
    """A reader for single rows: it keeps only a few pages, so it never has to rest."""
    conn = open_reader(engine)
    raw_connection(conn).execute("PRAGMA cache_size=-512")
    return conn


def wake(conn: Connection) -> None:
    """Let a reader look at the file in place: a page of a list is spread over thousands of its pages."""
    raw_connection(conn).execute(f"PRAGMA mmap_size={_MAPPED}")


def rest(conn: Connection) -> None:
    """Give back what a reader has mapped and cached."""
    raw = raw_connection(conn)
    raw.execute("PRAGMA mmap_size=0")
    raw.execute("PRAGMA shrink_memory")


def raw_connection(conn: Connection) -> sqlite3.Connection:
    return cast("sqlite3.Connection", conn.connection.dbapi_connection)


def probe_writable(conn: Connection) -> None:
    """Take the write lock and give it back: a read-only file says so here, not at the first job."""
    raw = raw_connection(conn)
    raw.execute("BEGIN IMMEDIATE")
    raw.execute("ROLLBACK")


def rewrite_a_page(conn: Connection) -> None:
    """Write what is there already: whether the disk takes it shows at the commit."""
    raw = raw_connection(conn)
    (number,) = raw.execute("PRAGMA user_version").fetchone()
    raw.execute(f"PRAGMA user_version={number}")


def table_names(conn: Connection) -> set[str]:
    rows = raw_connection(conn).execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {str(name) for (name,) in rows}


def transaction_lost(conn: Connection) -> bool:
    """Whether SQLite has rolled the whole transaction back by itself (disk full, I/O error)."""
    return not raw_connection(conn).in_transaction


def without_foreign_keys(conn: Connection, off: bool) -> None:
    # Rebuilding a table drops the old one, which would cascade through the foreign keys.
    raw_connection(conn).execute(f"PRAGMA foreign_keys={'OFF' if off else 'ON'}")


def broken_foreign_keys(conn: Connection) -> bool:
    return raw_connection(conn).execute("PRAGMA foreign_key_check").fetchone() is not None


def back_up(conn: Connection, target: Path) -> None:
    """Copy the database into ``target``: whole or not at all, on disk before this returns."""
    aside = target.with_name(target.name + ".partial")
    aside.unlink(missing_ok=True)
    raw_connection(conn).execute("VACUUM INTO ?", (str(aside),))
    with aside.open("rb") as copy:
        os.fsync(copy.fileno())
    aside.chmod(0o600)
    aside.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def as_store_error(error: BaseException, path: Path) -> StoreError | None:
    """What a failure of the database itself means to a person; None when it is not one."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, DBAPIError):
        error = error.orig or error
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _disk_full(path)):
        return _full(path)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError(
            f"{path} is not a database.",
            hint="Move it away, or put a backup in its place.",
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreError(
            f"The cluster's database {path} is damaged ({error}).",
            hint="Put a backup in its place (together with removing the files ending in -wal and -shm).",
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreError(
            f"The cluster's database cannot be written: file, folder or disk is read-only ({path}).",
            hint="Give the account that runs the cluster the right to write there.",
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(path)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            f"Another program has kept the cluster's database {path} for itself for {BUSY_SECONDS:.0f} s.",
            status=503,
            hint="Find it with: fuser -v " + str(path),
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            f"The disk failed while the cluster's database {path} was in use ({error}).",
            status=503,
            hint="Look at what the kernel says of it: dmesg",
        )
    return None


def _full(path: Path) -> StoreError:
    return StoreError(
        f"The disk that holds the cluster's database is full ({path}).",
        status=503,
        hint="Free some space on it.",
    )


def _cannot_open(path: Path) -> StoreError:
    folder = path.parent
    if not folder.is_dir():
        return StoreError(f"The cluster's database {path} cannot be opened: there is no folder {folder}.")
    if path.is_dir():
        return StoreError(f"The cluster's database {path} cannot be opened: it is a folder.")
    if len(os.fsencode(path)) > _LONG_PATH:
        return StoreError(
            f"The database {path} cannot be opened: SQLite takes no path of more than {_LONG_PATH} bytes.",
            hint="Choose a folder with a shorter name.",
        )
    if _disk_full(path):
        return _full(path)
    return StoreError(
        f"The cluster's database {path} cannot be opened: file, folder or disk is read-only.",
        hint="Give the account that runs the cluster the right to write there.",
    )


def _disk_full(path: Path) -> bool:
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < 64 * 1024


def copy_database(source: Path, target: Path) -> None:
    """The database as of one moment, whole, also while a server writes to it."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)) as reading:
            with closing(sqlite3.connect(target)) as writing:
                reading.backup(writing)
    except sqlite3.Error as error:
        failure = as_store_error(error, source)
        raise failure or StoreError(f"The database {source} could not be copied: {error}.") from error
