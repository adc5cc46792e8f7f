"""Integrity of the database file: what a crash, a bad disk or a deleted file may have done to it.

A marker beside the database (`cluster.db-session`) tells whether the last process closed it. After a clean
shutdown nothing is checked, so a start takes no longer with many jobs. Otherwise:

- The write-ahead log is compared with its index (`-shm`), which the killed process left behind. SQLite
  ignores the log from the first damaged frame on, without an error: the index tells how long it was.
- `PRAGMA quick_check` reads every page.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import struct
import time
from collections.abc import Mapping, Set
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import Connection, MetaData

from paicluster.store import sqlite
from paiprotocol.errors import StoreError

_log = logging.getLogger("paicluster.store")

# The marker has this size from its creation, so that a full disk cannot prevent a change of it.
_MARKER_BYTES = 512
# Problems that are reported of one database.
_MAX_PROBLEMS = 20

# States of the marker. CLOSING: all writes are done, SQLite is about to remove its log.
_OPEN, _CLOSING, _CLOSED, _DAMAGED = "open", "closing", "closed", "damaged"

# The index of the log: two copies of a header, of which we need the number of frames, and how many of them
# were copied into the database.
_INDEX_FRAMES_AT = 16
_INDEX_COPIED_AT = 96
_INDEX_BYTES = 136


@dataclass(frozen=True, slots=True)
class _LastProcess:
    """The last process that opened the database."""

    state: str
    # Boot of the machine: the index of the log is not synced, so it is not compared after another boot.
    boot_id: str = ""
    # The database file: the marker says nothing about one that replaced it.
    inode: int = 0
    # With DAMAGED: the sentence for the administrator.
    reason: str = ""


class ShutdownMarker:
    """File beside the database that tells how the last process left it."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(database.name + "-session")
        self.last = self._read()

    def is_clean(self) -> bool:
        """Whether the last process has closed the database."""
        return not _size(_log_of(self._database)) and (self.last is None or self.last.state == _CLOSED)

    def opened(self) -> None:
        """Record, before the first write, that the database is in use."""
        self._write(_OPEN, sync_folder=True)

    def closing(self) -> None:
        self._write_unless_full(_CLOSING)

    def closed(self) -> None:
        self._write_unless_full(_CLOSED)

    def damaged(self, reason: str) -> None:
        self._write_unless_full(_DAMAGED, reason)

    def accept(self) -> None:
        """Forget damage: the next start checks the pages, and no longer the log."""
        self._write(_CLOSING)

    def _read(self) -> _LastProcess | None:
        try:
            last = _LastProcess(**json.loads(self._path.read_bytes().rstrip(b"\0")))
            return last if last.inode == self._database.stat().st_ino else None
        except (OSError, ValueError, TypeError):
            return None  # a new database, one of an earlier version, or a damaged marker

    def _write_unless_full(self, state: str, reason: str = "") -> None:
        try:
            self._write(state, reason)
        except (OSError, StoreError) as error:
            _log.warning("The marker %s could not be written: %s", self._path, error)

    def _write(self, state: str, reason: str = "", *, sync_folder: bool = False) -> None:
        last = _LastProcess(state, _boot_id(), self._database.stat().st_ino, reason[:300])
        data = json.dumps(asdict(last)).encode().ljust(_MARKER_BYTES, b"\0")
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(fd, data, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            if sync_folder:
                # Of the log as well: otherwise it might be missing after a crash of the machine.
                sqlite.sync_folder(self._path.parent)
        except OSError as error:
            raise sqlite.unwritable(error, self._path) from None


def check_log(database: Path, marker: ShutdownMarker) -> None:
    """Raise StoreError if committed changes in the write-ahead log are lost.

    Changes neither the database nor the log, so that a log that is only misplaced can be put back.
    """
    last = marker.last
    if last is None or last.state in (_CLOSED, _CLOSING):
        return
    if last.state == _DAMAGED:
        raise _lost_changes(last.reason)
    log = _log_of(database)
    index = _read_index(database) if last.boot_id == _boot_id() else None
    frames, copied = index or (1, 0)
    if not log.exists():
        if frames == copied:
            return
        # Any program of SQLite moves the log into the database and removes both files. That leaves the same
        # files as deleting them by hand, so it is the administrator who decides.
        raise _lost_changes(
            f"The database's write-ahead log {log} is missing, though the last server did not shut down: "
            "its last changes are lost, unless another program has opened the database since.",
            "Put the file back; or",
        )
    if index is None:
        return
    readable = _readable_frames(database)
    if readable is None or readable >= frames or (not readable and frames == copied):
        return
    reason = (
        f"The database's write-ahead log {log} is damaged: of {frames} changed pages {frames - readable} "
        "cannot be read, and the last changes are lost."
    )
    # Remembered: SQLite has adapted the index to what it could read.
    marker.damaged(reason)
    raise _lost_changes(reason)


def _lost_changes(reason: str, first: str = "Either") -> StoreError:
    return StoreError(
        reason,
        hint=f"{first} return to a backup with paicluster restore-store, or continue without these changes: "
        "paicluster check-store --accept",
    )


def _readable_frames(database: Path) -> int | None:
    """Number of committed frames that SQLite finds in the log; None if the database itself is unreadable."""
    try:
        with _open_read_only(database) as conn:
            conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
            frames, _ = _read_index(database) or (None, None)
            return frames
    except sqlite3.Error:
        return None


def _open_read_only(database: Path, *, immutable: bool = False) -> closing[sqlite3.Connection]:
    """A connection that changes nothing: closing any other one would move the log into the database."""
    return closing(sqlite3.connect(sqlite.read_only_uri(database, immutable=immutable), uri=True))


def _read_index(database: Path) -> tuple[int, int] | None:
    """Number of committed frames in the log, and how many of them are in the database; None if unknown."""
    try:
        with database.with_name(database.name + "-shm").open("rb") as file:
            data = file.read(_INDEX_BYTES)
        frames = struct.unpack_from("=I", data, _INDEX_FRAMES_AT)[0]
        return frames, struct.unpack_from("=I", data, _INDEX_COPIED_AT)[0]
    except (OSError, struct.error):
        return None


def quick_check(path: Path) -> None:
    """Raise StoreError if a page of the database is damaged. Takes about a second for each 500 MB."""
    _log.info("The last server did not shut down cleanly: checking the database %s", path)
    started = time.monotonic()
    with _open_read_only(path) as conn:
        problems = [str(row[0]) for row in conn.execute("PRAGMA quick_check(1)")]
    if problems != ["ok"]:
        raise sqlite.damaged(path, problems[0].splitlines()[-1])
    _log.info("checked the database in %.1f s", time.monotonic() - started)


def check_schema(conn: Connection, path: Path, metadata: MetaData) -> None:
    """Raise StoreError if a table or a column is missing."""
    rows = sqlite.raw_connection(conn).execute(
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'"
    )
    columns: dict[str, set[str]] = {}
    for table, column in rows:
        columns.setdefault(table, set()).add(column)
    if missing := missing_part(columns, metadata):
        raise sqlite.damaged(path, missing)


def missing_part(columns: Mapping[str, Set[str]], metadata: MetaData) -> str | None:
    """Which table or column is missing. ``columns``: those of each table of a database."""
    for table in metadata.tables.values():
        if table.name not in columns:
            return f"the table {table.name} is missing"
        if missing := {column.name for column in table.columns} - columns[table.name]:
            return f"the table {table.name} has no column {min(missing)}"
    return None


def problems_of(path: Path, *, quick: bool = False) -> list[str]:
    """Everything SQLite finds wrong with a snapshot of a database.

    ``quick``: of a backup, which no process uses: its pages only.
    """
    try:
        with _open_read_only(path, immutable=quick) as conn:
            check = "quick_check" if quick else "integrity_check"
            messages = [str(row[0]) for row in conn.execute(f"PRAGMA {check}({_MAX_PROBLEMS})")]
            problems = [] if messages == ["ok"] else [line for text in messages for line in text.splitlines()]
            for table, row, parent, _ in conn.execute("PRAGMA foreign_key_check"):
                problems.append(f"row {row} of {table} refers to a row of {parent} that does not exist")
                if len(problems) >= _MAX_PROBLEMS:
                    break
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the message may contain what is damaged
        failure = sqlite.as_store_error(error, path)
        return [failure.message if failure is not None else str(error)]
    return problems[:_MAX_PROBLEMS]


def _log_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
