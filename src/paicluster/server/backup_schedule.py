"""Schedule of the automatic backups of a running cluster's database."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from openpaisdk.errors import PaiError
from paicluster.config.sections import BackupSettings
from paicluster.store.backups import BackupFolder

log = logging.getLogger("paicluster.backups")


class BackupSchedule:
    def __init__(
        self, database: Path, folder: Path, settings: BackupSettings, *, initial_delay_s: float = 60.0
    ) -> None:
        self._database = database
        self._folder = BackupFolder(folder)
        self._settings = settings
        self._initial_delay_s = initial_delay_s
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
            await asyncio.sleep(delay_s)

    def _back_up_if_due(self, every_s: float) -> float:
        """Back up the database if the last backup is old enough. Seconds until the next one is due."""
        newest = next(iter(self._folder.backups()), None)
        # A backup from the future is one of a wrong clock.
        age_s = time.time() - newest.taken_s if newest is not None else every_s
        if 0 <= age_s < every_s:
            return every_s - age_s
        if newest is None or self._changed_s() > newest.taken_s:
            backup = self._folder.take(self._database)
            self._folder.thin(every_s, self._settings.keep_s)
            log.info("backed up the database to %s (%d kB)", backup.path, backup.size >> 10)
        return every_s

    def _changed_s(self) -> float:
        files = (self._database, self._database.with_name(self._database.name + "-wal"))
        return max(file.stat().st_mtime for file in files if file.exists())
