"""Automatic backups of the database: checked copies in a folder of their own, thinned out by age."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import time
from calendar import timegm
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from paicluster.store import sqlite
from paicluster.store.integrity import problems_of
from paiprotocol.errors import StoreError

_TIME = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"cluster-(\d{8}T\d{6}Z)\.db")
# Kept however old they are: a clock that jumps ahead must not remove all of them.
_MIN_KEPT = 3
# Space that a backup leaves on the disk, which the running cluster needs.
_MIN_FREE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Backup:
    path: Path
    taken_s: float

    @property
    def size(self) -> int:
        return self.path.stat().st_size


def _page_problems(copy: Path) -> list[str]:
    return problems_of(copy, quick=True)


class BackupFolder:
    """The backups of one cluster's database."""

    def __init__(self, folder: Path) -> None:
        self.path = folder

    def backups(self) -> list[Backup]:
        """All backups, newest first."""
        names = os.listdir(self.path) if self.path.is_dir() else ()
        backups = [
            Backup(self.path / name, taken_s) for name in names if (taken_s := _taken_at(name)) is not None
        ]
        return sorted(backups, key=lambda backup: backup.taken_s, reverse=True)

    def take(self, database: Path, check: Callable[[Path], Sequence[str]] = _page_problems) -> Backup:
        """Copy the database while it is in use. A damaged copy replaces no good one: it is an error.

        ``check``: what is wrong with a copy; it opens the file that was written.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._remove_partial()
            needed, free = database.stat().st_size + _MIN_FREE_BYTES, shutil.disk_usage(self.path).free
        except OSError as error:
            raise StoreError(f"The folder {self.path} cannot be used: {error.strerror}.") from error
        if free < needed:
            raise StoreError(
                f"The disk of {self.path} has too little space for a backup of the database: "
                f"{free >> 20} MB are free, {needed >> 20} MB are needed.",
                hint="Free some space, or set `folder` of `backups` to another disk.",
            )
        backup = Backup(self.path / f"cluster-{time.strftime(_TIME, time.gmtime())}.db", time.time())
        partial = backup.path.with_suffix(".partial")
        sqlite.make_file(partial)
        try:
            sqlite.copy_database(database, partial)
            if problems := check(partial):
                raise sqlite.damaged(database, problems[0])
            sqlite.replace_durably(partial, backup.path)
        except OSError as error:
            raise StoreError(f"The backup {backup.path} cannot be written: {error.strerror}.") from error
        finally:
            partial.unlink(missing_ok=True)
        return backup

    def thin(self, first_s: float, keep_s: float) -> None:
        """Remove backups: fewer are kept the older they are."""
        backups = self.backups()
        now_s = time.time()
        for number in expendable([now_s - backup.taken_s for backup in backups], first_s, keep_s):
            backups[number].path.unlink(missing_ok=True)

    def _remove_partial(self) -> None:
        """Remove what a server left that was killed during a backup."""
        for path in self.path.glob("cluster-*.partial*"):
            path.unlink(missing_ok=True)


def expendable(ages: Sequence[float], first_s: float, keep_s: float) -> list[int]:
    """Positions of the backups to remove. ``ages``: ascending, in seconds.

    Of those younger than ``first_s``, twice that, four times that and so on, the oldest is kept; of those
    older than ``keep_s``, none. The newest are always kept.
    """
    kept: dict[int, int] = {}
    removed = []
    for position, age in enumerate(ages):
        if position < _MIN_KEPT:
            continue
        if age > keep_s:
            removed.append(position)
            continue
        band = max(0, int(age / first_s)).bit_length()
        if band in kept:
            removed.append(kept[band])
        kept[band] = position
    return sorted(removed)


def return_to(backup: Path, database: Path, aside: Path) -> None:
    """Replace the database by a backup. The old files are moved to the new folder ``aside``.

    The caller holds the lock of the home.
    """
    copy = database.with_name(database.name + ".restoring")
    copy.unlink(missing_ok=True)
    sqlite.make_file(copy)
    try:
        sqlite.copy_database(backup, copy, immutable=True)
        with closing(sqlite3.connect(copy)) as conn:
            conn.execute("SELECT count(*) FROM jobs").fetchone()
        if problems := problems_of(copy, quick=True):
            raise StoreError(f"The backup {backup} is damaged ({problems[0]}).", hint="Choose another one.")
        aside.mkdir(mode=0o700, parents=True)
        for suffix in ("-wal", "-shm", "-session", ""):
            file = database.with_name(database.name + suffix)
            if file.exists():
                shutil.move(file, aside / file.name)
        sqlite.replace_durably(copy, database)
    except sqlite3.Error as error:
        raise StoreError(f"{backup} is not a backup of a cluster's database ({error}).") from error
    finally:
        for suffix in ("", "-wal", "-shm"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)


def _taken_at(name: str) -> float | None:
    match = _NAME.fullmatch(name)
    try:
        return float(timegm(time.strptime(match[1], _TIME))) if match else None
    except ValueError:
        return None
