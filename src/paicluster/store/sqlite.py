"""SQLite specifics: connection setup, error messages, backup."""

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

from paiprotocol.errors import StoreError

# How long another program (a backup, a sqlite3 shell) may hold the lock before a write fails.
BUSY_TIMEOUT_S = 30.0

# How much of the database a reader maps; pages beyond it are read one by one.
_MMAP_BYTES = 1 << 30

_MIN_VERSION = (3, 35)

# About the longest path SQLite accepts, with the suffixes of the files beside the database.
_MAX_PATH_BYTES = 500

_WRITER = "paicluster_writer"

_CHECK = "See which one it is: paicluster check-store --home DIR"
_WAY_BACK = "Return to a backup: paicluster restore-store --home DIR lists them."


class UnreadableRow(StoreError):
    """A row of the database is damaged; all others can be used."""


def make_engine(path: Path) -> Engine:
    """Engine with explicit transactions: the driver's implicit BEGIN is off."""

    if sqlite3.sqlite_version_info < _MIN_VERSION:
        raise StoreError(
            f"SQLite {'.'.join(map(str, _MIN_VERSION))} or newer is needed; this is {sqlite3.sqlite_version}."
        )

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            path,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )

    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=NullPool)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(conn: Connection) -> None:
    # SQLAlchemy begins a transaction at its first statement; one may already be open.
    if not raw_connection(conn).in_transaction:
        begin(conn)


def begin(conn: Connection) -> None:
    """Begin a transaction. A writer takes the lock at once: upgrading to it later could fail."""
    raw_connection(conn).execute("BEGIN IMMEDIATE" if conn.get_execution_options().get(_WRITER) else "BEGIN")


def commit(conn: Connection) -> None:
    """Commit the transaction, whether or not SQLAlchemy knows of it."""
    if conn.in_transaction():
        conn.commit()
    else:
        raw_connection(conn).commit()


def rollback(conn: Connection) -> None:
    # Also where SQLAlchemy has no transaction: after a commit that failed it refuses statements until this.
    conn.rollback()
    raw_connection(conn).rollback()


def make_file(path: Path) -> None:
    """Create the file if missing, with mode 0600; SQLite gives the files beside it the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise unwritable(error, path) from None


def unwritable(error: OSError, path: Path) -> StoreError:
    """The error of a file of the database that could not be written."""
    return _full(path) if error.errno in (errno.ENOSPC, errno.EDQUOT) else _cannot_open(path)


def open_writer(engine: Engine) -> Connection:
    conn = engine.connect().execution_options(**{_WRITER: True})
    raw = raw_connection(conn)
    raw.execute("PRAGMA journal_mode=WAL")
    raw.execute("PRAGMA synchronous=FULL")
    raw.execute("PRAGMA foreign_keys=ON")
    # A checkpoint every so many pages: a page that changes often is copied once, not each time.
    raw.execute("PRAGMA wal_autocheckpoint=4000")
    # After a burst the log file is truncated to this, so that it does not keep its peak size.
    raw.execute("PRAGMA journal_size_limit=16777216")
    return conn


def open_reader(engine: Engine) -> Connection:
    conn = engine.connect()
    raw_connection(conn).execute("PRAGMA query_only=ON")
    return conn


def open_inline_reader(engine: Engine) -> Connection:
    """A reader for single rows: its cache is small, so it never has to be released."""
    conn = open_reader(engine)
    raw_connection(conn).execute("PRAGMA cache_size=-512")
    return conn


def map_file(conn: Connection) -> None:
    """Let a reader map the file: a page of a listing is spread over thousands of database pages."""
    raw_connection(conn).execute(f"PRAGMA mmap_size={_MMAP_BYTES}")


def release_memory(conn: Connection) -> None:
    """Release what a reader has mapped and cached."""
    raw = raw_connection(conn)
    raw.execute("PRAGMA mmap_size=0")
    raw.execute("PRAGMA shrink_memory")


def raw_connection(conn: Connection) -> sqlite3.Connection:
    return cast("sqlite3.Connection", conn.connection.dbapi_connection)


def probe_writable(conn: Connection) -> None:
    """Take and release the write lock: a read-only file fails here, not at the first job."""
    raw = raw_connection(conn)
    raw.execute("BEGIN IMMEDIATE")
    raw.execute("ROLLBACK")


def rewrite_page(conn: Connection) -> None:
    """Write an unchanged value: a full disk shows at the commit."""
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
    # Rebuilding a table drops the old one, which would cascade through foreign keys.
    raw_connection(conn).execute(f"PRAGMA foreign_keys={'OFF' if off else 'ON'}")


def broken_foreign_keys(conn: Connection) -> bool:
    return raw_connection(conn).execute("PRAGMA foreign_key_check").fetchone() is not None


def back_up(conn: Connection, target: Path) -> None:
    """Copy the database to ``target`` atomically and durably."""
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    raw_connection(conn).execute("VACUUM INTO ?", (str(partial),))
    replace_durably(partial, target)


def replace_durably(copy: Path, target: Path) -> None:
    """Rename a complete copy of a database to its name."""
    copy.chmod(0o600)
    with copy.open("rb") as file:
        os.fsync(file.fileno())
    copy.replace(target)
    sync_folder(target.parent)


def sync_file(path: Path) -> None:
    """Make a file and its name durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def as_store_error(error: BaseException, path: Path) -> StoreError | None:
    """Error message for users of a failure of the database itself; None for any other error."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, DBAPIError):
        error = error.orig or error
    if not isinstance(error, sqlite3.Error):
        return None
    if "Could not decode to UTF-8" in str(error):
        # Python's own error, of one value.
        return UnreadableRow(f"A row of the cluster's database {path} is damaged ({error}).", hint=_CHECK)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _disk_full(path)):
        return _full(path)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError(
            f"{path} is not a database.",
            hint=_WAY_BACK,
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return damaged(path, str(error))
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreError(
            f"The cluster's database cannot be written: file, folder or disk is read-only ({path}).",
            hint="Give the account that runs the cluster write permission there.",
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(path)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            f"Another program has held the write lock of {path} for {BUSY_TIMEOUT_S:.0f} s.",
            status=503,
            hint="Find it with: fuser -v " + str(path),
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            f"The disk failed while the cluster's database {path} was in use ({error}).",
            status=503,
            hint="See the kernel log: dmesg",
        )
    return None


def damaged(path: Path, reason: str) -> StoreError:
    return StoreError(f"The cluster's database {path} is damaged ({reason}).", hint=_WAY_BACK)


def _full(path: Path) -> StoreError:
    return StoreError(
        f"The disk that holds the cluster's database is full ({path}).",
        status=503,
        hint="Free some space on it.",
    )


def _cannot_open(path: Path) -> StoreError:
    folder = path.parent
    try:
        has_folder = folder.is_dir()
    except PermissionError:
        return StoreError(
            f"The cluster's database {path} cannot be opened: a folder above it is closed to this account.",
            hint="Give the account that runs the cluster permission to enter it, or choose another home.",
        )
    if not has_folder:
        return StoreError(f"The cluster's database {path} cannot be opened: there is no folder {folder}.")
    if path.is_dir():
        return StoreError(f"The cluster's database {path} cannot be opened: it is a folder.")
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        return StoreError(
            f"The database {path} cannot be opened: SQLite accepts paths of at most {_MAX_PATH_BYTES} bytes.",
            hint="Choose a folder with a shorter name.",
        )
    if _disk_full(path):
        return _full(path)
    return StoreError(
        f"The cluster's database {path} cannot be opened: file, folder or disk is read-only.",
        hint="Give the account that runs the cluster write permission there.",
    )


def _disk_full(path: Path) -> bool:
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < 64 * 1024


def copy_database(source: Path, target: Path, *, immutable: bool = False) -> None:
    """Copy a consistent snapshot of the database, also while a server writes to it.

    ``immutable``: the source is a backup, beside which no file is created.
    """
    try:
        with closing(sqlite3.connect(read_only_uri(source, immutable=immutable), uri=True)) as reading:
            with closing(sqlite3.connect(target)) as writing:
                reading.backup(writing)
    except sqlite3.Error as error:
        failure = as_store_error(error, source)
        raise failure or StoreError(f"The database {source} could not be copied: {error}.") from error


def read_only_uri(path: Path, *, immutable: bool = False) -> str:
    return f"file:{quote(str(path))}?mode=ro{'&immutable=1' if immutable else ''}"
