"""Hands what was decided to start to the engines, and gives it up where that cannot be done."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator

from openpaisdk.errors import PaiError
from paicluster.controller.changes import Changes, Event
from paicluster.controller.job_record import JobRecord
from paicluster.controller.launch_spec import (
    CODE_BESIDE_WORK,
    LaunchSettings,
    build_launch,
    image_warnings,
    wants_image,
)
from paicluster.controller.storage_mounts import unmountable
from paicluster.engines.interface import LaunchFailed, RunsImages
from paicluster.engines.router import EngineRouter
from paicluster.store import Store

log = logging.getLogger("paicluster.controller")

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


class Launcher:
    """``hint`` is called with the tasks that were not launched: their state is to be looked at."""

    def __init__(
        self, store: Store, engines: EngineRouter, settings: LaunchSettings, hint: Callable[[str], None]
    ):
        self._store = store
        self._engines = engines
        self._settings = settings
        self._hint = hint
        self._leaving = asyncio.Event()

    def cancel_pauses(self) -> None:
        """Nobody waits for a pause any more."""
        self._leaving.set()

    def launch(self, record: JobRecord) -> None:
        """Start what is to be started of a job, beside everything else."""
        if record.launching is None:
            record.launching = asyncio.create_task(self._launch_all(record))

    def start_warnings(self, record: JobRecord) -> Iterator[Event]:
        """What people should know of a job before it runs: where it is not run as it asked for."""
        job_id = record.row.id
        engine = self._engines.engine_of(record.job, record.row.vc)
        for remark in self._engines.notices(engine):
            yield Event(job_id, remark.type, remark.reason, remark.message)
        on_the_host = not wants_image(record.job)
        if not on_the_host and not isinstance(self._engines.get(engine), RunsImages):
            on_the_host = True
            for message in image_warnings(record):
                yield Event(job_id, "Warning", "ImageNotUsed", message)
        unmounted = unmountable(
            record.job,
            record.row.username,
            self._settings.folders,
            on_the_host=on_the_host,
            elsewhere=record.row.vc in self._engines.self_scheduling,
        )
        for target, instead in unmounted.items():
            yield Event(
                job_id, "Warning", "StorageNotMounted", f"Nothing is mounted at {target} here: {instead}."
            )
        if on_the_host and record.row.generation == "v1" and record.job.prerequisite("script", "default"):
            yield Event(job_id, "Normal", "CodeBesideWork", CODE_BESIDE_WORK)

    async def _launch_all(self, record: JobRecord) -> None:
        """Everything that is to be started of a job; for one without a gang more may come meanwhile."""
        uids: list[str] = []
        abandoned = True
        try:
            await self._pause_before_relaunch(record)
            while uids := record.to_launch:
                record.launched.update(uids)
                engine = self._engines.engine_of(record.job, record.row.vc)
                for part in self._handed_together(record, uids):
                    await self._engines.launch(
                        engine, build_launch(record, self._settings, part), record.intent_committed
                    )
            # From here on the engine hints by itself: at the start, at the end, when a supervisor dies.
            abandoned = False
        except LaunchFailed as error:
            if record.launch_error != error.message:
                log.warning("%s could not be launched: %s", record.row.framework, error)
            record.launch_error = error.message if error.transient else ""
            await self._abandon(record, uids, error.message)
        except PaiError as error:
            record.launch_error = ""
            await self._abandon(record, uids, error.message)
        except Exception:
            record.launch_error = ""
            log.exception("%s could not be launched", record.row.framework)
            await self._abandon(record, uids, "The cluster could not prepare the task; its log says why.")
        finally:
            record.launching = None
            for uid in uids if abandoned else ():
                self._hint(uid)

    def _handed_together(self, record: JobRecord, uids: list[str]) -> Iterator[list[str]]:
        """Tasks that need not wait for each other are handed over each by itself."""
        if record.job.gang or record.row.vc not in self._engines.self_scheduling:
            yield uids
            return
        for uid in uids:
            # While others were handed over it may have been stopped.
            if uid in record.tasks.live:
                yield [uid]

    async def _pause_before_relaunch(self, record: JobRecord) -> None:
        """What keeps a task from starting, such as a full disk, does not pass by trying harder."""
        if record.to_relaunch:
            record.to_relaunch.clear()
            pause = min(_FIRST_PAUSE_S * 2.0 ** min(record.relaunches, 10), _LONGEST_PAUSE_S)
            record.relaunches += 1
            try:
                await asyncio.wait_for(self._leaving.wait(), pause)
            except TimeoutError:
                pass

    async def _abandon(self, record: JobRecord, uids: list[str], why: str) -> None:
        """Nothing of the gang may start any more; its attempt then ends, and is retried by the rules."""
        certain = record.intent_committed
        if certain is not None and not await certain:
            return  # it never was to be
        try:
            await self._engines.stop(uids, 0)
        except OSError as error:
            # The attempts are as they were, not started: they are launched again after a pause.
            log.warning("%s could not be given up: %s", record.row.framework, error)
            return
        event = Event(record.row.id, "Warning", "FailedLaunch", why)
        changes = Changes(events=[event])
        try:
            await self._store.write(lambda conn: changes.write(conn, int(time.time() * 1000)))
        except Exception as error:
            # It is only a remark: what follows from the end of the tasks is the loop's to write.
            log.warning("The event %r could not be written: %s", why, error)
