"""Launcher: passes placed tasks to the engines, and abandons those that cannot be launched."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from paicluster.controller.job_record import JobRecord
from paicluster.controller.launch_spec import (
    CODE_DIR_IN_WORK_DIR,
    LaunchSettings,
    build_launch,
    image_warnings,
    wants_image,
)
from paicluster.controller.mountable_storages import unmountable
from paicluster.controller.reconcile_changes import Changes, Event
from paicluster.controller.storage_credentials import credential_problems, mount_problems
from paicluster.controller.timings import DEFAULT_TIMINGS, Backoff
from paicluster.engines.common import external_wait
from paicluster.engines.interface import LaunchFailed
from paicluster.engines.router import EngineRouter
from paicluster.services.work_journal import Step, WorkJournal
from paicluster.store import Store, groups
from paiprotocol.errors import PaiError, ProtocolError
from paiprotocol.jobs.extras import find_plugin, requested_storages

log = logging.getLogger("paicluster.controller")

_SSH_NOT_SERVED = (
    "This cluster has no SSH endpoint, so the plugin ssh has no effect. A task can be reached by "
    "SSH if it starts a server of its own at the port $PAI_CONTAINER_SSH_PORT."
)
_NO_SSH_BETWEEN_TASKS = (
    "The tasks of this job start one by one (gangAllocation: false): jobssh and sshbarrier have no effect."
)


class Launcher:
    """Launches placed tasks. ``hint(uid)`` is called for those that were not launched: they are observed."""

    def __init__(
        self,
        store: Store,
        engines: EngineRouter,
        settings: LaunchSettings,
        hint: Callable[[str], None],
        work_journal: WorkJournal | None = None,
        *,
        relaunch_backoff: Backoff = DEFAULT_TIMINGS.relaunch_backoff,
    ):
        self._store = store
        self._engines = engines
        self._settings = settings
        self._hint = hint
        self._work_journal = work_journal or WorkJournal()
        self._relaunch_backoff = relaunch_backoff
        self._closing = asyncio.Event()

    def cancel_pauses(self) -> None:
        """End all back-offs at once, to shut down."""
        self._closing.set()

    def launch(self, record: JobRecord) -> None:
        """Launch the tasks of a job that are to be launched, in the background."""
        if record.launching is None and not record.condemned:
            record.launching = asyncio.create_task(self._launch_all(record))

    def start_warnings(self, record: JobRecord) -> Iterator[Event]:
        """Events for requests of the job that this cluster cannot honour."""
        job_id = record.row.id
        engine = self._engines.engine_of(record.job, record.row.vc)
        for notice in self._engines.notices(engine):
            yield Event(job_id, notice.type, notice.reason, notice.message, pending=notice.pending)
        on_host = not wants_image(record.job)
        if not on_host and not self._engines.may_run_images(engine):
            on_host = True
            for message in image_warnings(record):
                yield Event(job_id, "Warning", "ImageNotUsed", message)
        delegated = record.row.vc in self._engines.self_scheduling
        unmounted = unmountable(
            record.job, record.row.username, self._settings.folders, on_host=on_host, delegated=delegated
        )
        for target, instead in unmounted.items():
            yield Event(
                job_id, "Warning", "StorageNotMounted", f"No storage is mounted at {target} here: {instead}."
            )
        for problem in mount_problems(record.job, self._settings.cloud_storages):
            yield Event(job_id, "Warning", "StorageNotMounted", problem)
        for problem in credential_problems(record.job, self._settings.cloud_storages):
            yield Event(job_id, "Warning", "StorageCredentialsMissing", problem)
        if (plugin := find_plugin(record.job.extras, "ssh")) is not None:
            if not self._settings.serves_ssh:
                yield Event(job_id, "Warning", "SshNotServed", _SSH_NOT_SERVED)
            elif not record.job.gang and _wants_ssh_between_tasks(plugin):
                yield Event(job_id, "Warning", "JobSshNotServed", _NO_SSH_BETWEEN_TASKS)
        if on_host and record.row.generation == "v1" and record.job.prerequisite("script", "default"):
            yield Event(job_id, "Normal", "CodeDirInWorkDir", CODE_DIR_IN_WORK_DIR)

    async def _launch_all(self, record: JobRecord) -> None:
        """Launch until nothing is left to launch; for a job without a gang more tasks may come meanwhile."""
        uids: list[str] = []
        abandoned = True
        try:
            await self._pause_before_relaunch(record)
            # A stop may have come during the back-off: these tasks end without a start.
            while (uids := record.to_launch) and not record.stop_requested:
                record.launched.update(uids)
                engine = self._engines.engine_of(record.job, record.row.vc)
                for part in self._launch_groups(record, uids):
                    await self._launch_part(record, engine, part)
            # From here on the engine hints at the start, at the end, and when a supervisor dies.
            abandoned = False
        except LaunchFailed as error:
            if record.launch_error != error.message:
                log.warning("Cannot launch %s: %s", record.row.framework, error)
            record.launch_error = error.message if error.transient else ""
            await self._abandon(record, uids, error.message)
        except ProtocolError as error:
            # An older server accepted it. A retry would fail in the same way.
            record.launch_error, record.launch_rejection = "", error.message
            await self._abandon(record, uids, error.message)
        except PaiError as error:
            record.launch_error = ""
            await self._abandon(record, uids, error.message)
        except Exception:
            record.launch_error = ""
            log.exception("Cannot launch %s", record.row.framework)
            await self._abandon(
                record, uids, "The cluster could not prepare the task; the cluster's log says why."
            )
        finally:
            record.launching = None
            # Tasks that came while these were abandoned are launched once they are observed.
            for uid in (*uids, *record.to_launch) if abandoned else ():
                self._hint(uid)

    async def _launch_part(self, record: JobRecord, engine: str, uids: Sequence[str]) -> None:
        settings = await self._settings_of_user(record)
        async with self._work_journal.work(record.row.id, Step.RENDER) as work:
            gang = build_launch(record, settings, uids)
            work.advance(Step.LAUNCH)
            committed = record.intent_committed
            external_wait.set_wrapper(work.outside)
            await self._engines.launch(engine, gang, None if committed is None else work.outside(committed))

    async def _settings_of_user(self, record: JobRecord) -> LaunchSettings:
        """A job that requests its user's default storages gets those of the user's groups, too."""
        if requested_storages(record.job.extras) != ():
            return self._settings
        user = record.row.username
        grants = await self._store.read(lambda conn: groups.access_of(conn, user))
        return self._settings.with_defaults(grants.default_storages)

    def _launch_groups(self, record: JobRecord, uids: list[str]) -> Iterator[list[str]]:
        """Tasks to launch in one call: tasks without a gang are delegated one by one."""
        if record.job.gang or record.row.vc not in self._engines.self_scheduling:
            yield uids
            return
        for uid in uids:
            # It may have been stopped while others were delegated.
            if uid in record.tasks.live:
                yield [uid]

    async def _pause_before_relaunch(self, record: JobRecord) -> None:
        """Back off: a cause such as a full disk does not go away by retrying faster."""
        if record.to_relaunch:
            record.to_relaunch.clear()
            delay_s = self._relaunch_backoff.delay_s(record.relaunches)
            record.relaunches += 1
            try:
                async with asyncio.timeout(delay_s):
                    await self._closing.wait()
            except TimeoutError:
                pass

    async def _abandon(self, record: JobRecord, uids: list[str], reason: str) -> None:
        """Make sure that no task of the gang starts; its attempt then ends and is retried by its policy."""
        committed = record.intent_committed
        if committed is not None and not await committed:
            return  # the intent was rolled back
        try:
            await self._engines.stop(uids, 0)
        except OSError as error:
            # The attempts are still not started: they are launched again after a back-off.
            log.warning("Cannot abandon the launch of %s: %s", record.row.framework, error)
            return
        event = Event(record.row.id, "Warning", "FailedLaunch", reason, pending=True)
        changes = Changes(events=[event])
        try:
            await self._store.write(lambda conn: changes.write(conn, int(time.time() * 1000)))
        except Exception as error:
            # Only the event is lost: the reconcile loop writes what follows from the end of the tasks.
            log.warning("Cannot write the event %r: %s", reason, error)


def _wants_ssh_between_tasks(plugin: Mapping[str, Any]) -> bool:
    parameters = plugin.get("parameters")
    return isinstance(parameters, Mapping) and any(
        parameters.get(name) is True for name in ("jobssh", "sshbarrier")
    )
