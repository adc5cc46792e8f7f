"""Schedule of the automatic backups of a running cluster's database."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from paicluster.config.sections import BackupSettings
from paicluster.server.store_check import problems_of_copy, problems_of_database
from paicluster.store.backups import BackupFolder
from paicluster.store.sqlite import read_only_uri
from paiprotocol.errors import PaiError

log = logging.getLogger("paicluster.backups")


# The database itself is checked this often: pages that nothing writes are in no new backup.
_CHECK_INTERVAL_S = 7 * 86400.0
# On a cluster that is never idle, the check waits this many intervals.
_MAX_DELAYS = 4
# Touched by each check.
_LAST_CHECK = "last-check"


class BackupSchedule:
    """Backups of the database, each checked, and a check of the database itself once a week."""

    def __init__(
        self,
        database: Path,
        folder: Path,
        settings: BackupSettings,
        *,
        initial_delay_s: float = 60.0,
        check_interval_s: float = _CHECK_INTERVAL_S,
    ) -> None:
        self._database = database
        self._folder = BackupFolder(folder)
        self._settings = settings
        self._initial_delay_s = initial_delay_s
        self._check_interval_s = check_interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._settings.every_s is not None:
            self._task = asyncio.create_task(self._run(self._settings.every_s))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, every_s: float) -> None:
        await asyncio.sleep(self._initial_delay_s)
        while True:
            delay_s = every_s
            try:
                delay_s = await asyncio.to_thread(self._back_up_if_due, every_s)
            except PaiError as error:
                log.warning("The database was not backed up: %s", error.message)
            except Exception:
                log.exception("The database was not backed up")
            try:
                await asyncio.to_thread(self._check_if_due)
            except (PaiError, OSError, sqlite3.Error) as error:
                log.warning("The database was not checked: %s", error)
            await asyncio.sleep(delay_s)

    def _back_up_if_due(self, every_s: float) -> float:
        """Back up the database if the last backup is old enough. Seconds until the next one is due."""
        newest = next(iter(self._folder.backups()), None)
        # A backup from the future is one of a wrong clock.
        age_s = time.time() - newest.taken_s if newest is not None else every_s
        if 0 <= age_s < every_s:
            return every_s - age_s
        if newest is None or self._changed_s() > newest.taken_s:
            backup = self._folder.take(self._database, problems_of_copy)
            self._folder.thin(every_s, self._settings.keep_s)
            log.info("backed up the database to %s (%d kB)", backup.path, backup.size >> 10)
        return every_s

    def _check_if_due(self) -> None:
        """Check the whole database once a week, when no job is unfinished; damage is logged."""
        last = self._folder.path / _LAST_CHECK
        if not last.exists():
            # A new cluster.
            self._folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            last.touch(0o600)
            return
        age_s = time.time() - last.stat().st_mtime
        if 0 <= age_s < self._check_interval_s:
            return
        if 0 <= age_s < _MAX_DELAYS * self._check_interval_s and not self._is_idle():
            return
        started = time.monotonic()
        problems = problems_of_database(self._database)
        for problem in problems:
            log.error("The cluster's database is damaged: %s", problem)
        if problems:
            log.error("Stop the server, and run paicluster check-store: it says how to go on.")
        else:
            log.info("checked the whole database in %.1f s", time.monotonic() - started)
        last.touch()

    def _is_idle(self) -> bool:
        with closing(sqlite3.connect(read_only_uri(self._database), uri=True)) as conn:
            query = "SELECT 1 FROM jobs WHERE sub_state != 'Completed' LIMIT 1"
            return conn.execute(query).fetchone() is None

    def _changed_s(self) -> float:
        files = (self._database, self._database.with_name(self._database.name + "-wal"))
        return max(file.stat().st_mtime for file in files if file.exists())
