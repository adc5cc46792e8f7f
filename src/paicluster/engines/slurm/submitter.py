"""Submits gangs to Slurm: each exactly once, even if this server or slurmctld crashes in between."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from paicluster.engines.common import untrusted_files
from paicluster.engines.interface import Notice
from paicluster.engines.slurm import gang_folder
from paicluster.engines.slurm.gang_folder import read_flag as _read_flag
from paicluster.engines.slurm.gang_registry import InFiles, SubmittedGang
from paicluster.engines.slurm.job_states import SlurmJob
from paicluster.engines.slurm.slurm_commands import UNAVAILABLE, CommandResult, SlurmCommands

log = logging.getLogger(__name__)

_MAX_CONCURRENT = 8
_BACKOFF_MIN_S = 1.0
_BACKOFF_MAX_S = 30.0
# Of gangs that Slurm rejects for now one is retried per interval; after a success the next follows at once.
_RETRY_INTERVAL_S = 1.0
# Job id of a gang that Slurm has dropped: no job has this number.
_UNKNOWN_JOB = "0"


class Submitter:
    """Queue of gangs to submit, with retries."""

    def __init__(
        self,
        slurm: SlurmCommands,
        is_startable: Callable[[SubmittedGang], bool],
        notify: Callable[[SubmittedGang, Notice], None],
        on_done: Callable[[SubmittedGang], Awaitable[None]],
        in_files: InFiles,
    ):
        """``in_files``: runs what reads and writes the folders of gangs."""
        self._slurm = slurm
        self._is_startable = is_startable
        self._notify = notify
        self._on_done = on_done
        self._in_files = in_files
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        # Gangs rejected for now are retried one after the other.
        self._retry_lock = asyncio.Lock()
        self._query_lock = asyncio.Lock()
        # The squeue call that has not started yet.
        self._next_query: asyncio.Task[dict[str, list[SlurmJob]] | None] | None = None
        self._queries: set[asyncio.Task[Any]] = set()
        # Set when Slurm is available again.
        self._available = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, gang: SubmittedGang) -> None:
        if gang.uid not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._submit(gang))
            self._tasks[gang.uid] = task
            task.add_done_callback(lambda _: self._tasks.pop(gang.uid, None))

    def on_slurm_available(self) -> None:
        """Retry all waiting gangs now."""
        self._available.set()
        self._available.clear()

    async def close(self) -> None:
        """Cancel all submissions; the next server finds those under way."""
        tasks = [*self._tasks.values(), *self._queries]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _submit(self, gang: SubmittedGang) -> None:
        backoff_s = _BACKOFF_MIN_S
        while True:
            try:
                is_done = await (self._retry_in_turn(gang) if gang.rejected_for_now else self._try(gang))
            except OSError as error:
                self._notify(gang, _unwritable(error))
                log.warning("The gang %s could not be submitted; retrying: %s", gang.uid, error)
                is_done = False
            except Exception:
                log.exception("The gang %s could not be submitted; retrying.", gang.uid)
                is_done = False
            if is_done:
                await self._on_done(gang)
                return
            try:
                async with asyncio.timeout(backoff_s):
                    await self._available.wait()
                backoff_s = _BACKOFF_MIN_S
            except TimeoutError:
                backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    async def _retry_in_turn(self, gang: SubmittedGang) -> bool:
        """Retry gangs one at a time: what blocks one, such as a limit, blocks thousands."""
        async with self._retry_lock:
            is_done = await self._try(gang)
            if not is_done:
                await asyncio.sleep(_RETRY_INTERVAL_S)
            return is_done

    async def _try(self, gang: SubmittedGang) -> bool:
        """One attempt to submit. False: it must be retried."""
        folder = gang.folder
        if not await self._in_files(folder.exists):
            return True  # removed meanwhile
        was_submitting = await self._in_files(lambda: _read_flag(folder, gang_folder.SUBMITTING))
        if was_submitting is not None and not await self._find_lost_submission(gang):
            return gang.job is not None
        if gang.job is not None:
            return True  # submitted already
        command = await self._in_files(lambda: self._begin(gang))
        if command is None:
            return True  # stopped before it was submitted
        async with self._slots:
            result = await self._slurm.run(command)
        if result.status == 0:
            number = result.out.strip().rpartition("\n")[2].partition(";")[0]
            if not number.isdecimal():
                # An option made sbatch do something else, such as print its version.
                result = CommandResult(1, "", f"sbatch printed no job id: {untrusted_files.sanitize(number)}")
            else:
                await self._record_job_id(gang, number)
                return True
        return await self._failed(gang, result)

    def _begin(self, gang: SubmittedGang) -> list[str] | None:
        """The submit command, after noting that it is being run; None if no task can start any more."""
        if not self._is_startable(gang):
            return None
        gang_folder.write_flag(gang.folder, gang_folder.SUBMITTING, str(time.time()))
        command: list[str] = json.loads((gang.folder / gang_folder.SBATCH_COMMAND).read_text())
        return command

    async def _find_lost_submission(self, gang: SubmittedGang) -> bool:
        """An earlier submission has no known result: look for its job. True: there is none."""
        jobs = await self._jobs()
        if jobs is None:
            self._notify(gang, UNAVAILABLE)
            return False
        own = next((job for job in jobs.get(gang.uid, ()) if job.owner == gang.owner), None)
        if own is not None:
            await self._record_job_id(gang, own.id)
            return False
        if await self._in_files(lambda: _read_flag(gang.folder, gang_folder.OWNER)) is not None:
            # It has even started, and Slurm has dropped it since. The job id in its folder is not trusted.
            await self._record_job_id(gang, _UNKNOWN_JOB)
            return False
        return True

    async def _jobs(self) -> dict[str, list[SlurmJob]] | None:
        """Jobs from one squeue call, which all callers share that called before it started."""
        if self._next_query is None:
            self._next_query = asyncio.create_task(self._query())
            self._queries.add(self._next_query)
            self._next_query.add_done_callback(self._queries.discard)
        return await asyncio.shield(self._next_query)

    async def _query(self) -> dict[str, list[SlurmJob]] | None:
        async with self._query_lock:
            self._next_query = None
            jobs = await self._slurm.jobs()
            if jobs is None:
                await asyncio.sleep(_BACKOFF_MIN_S)
            return jobs

    async def _record_job_id(self, gang: SubmittedGang, job: str) -> None:
        await self._in_files(lambda: gang_folder.write_flag(gang.folder, gang_folder.JOB, job))
        gang.job = job
        gang.submitted = time.monotonic()

    async def _failed(self, gang: SubmittedGang, result: CommandResult) -> bool:
        if result.is_unavailable:
            self._notify(gang, UNAVAILABLE)
            return False
        # It is known not to have been submitted.
        await self._in_files(lambda: (gang.folder / gang_folder.SUBMITTING).unlink(missing_ok=True))
        gang.rejected_for_now = result.is_retryable
        if result.is_retryable:
            reason = f"Slurm says: {result.error_text}"
            self._notify(gang, Notice("FailedScheduling", reason, "Warning", pending=True))
            return False
        log.warning("sbatch rejects %s: %s", gang.uid, result.error_text)
        self._notify(gang, Notice("SlurmRefused", f"Slurm rejected the job: {result.error_text}", "Warning"))
        reason = f"Slurm rejected the job: {result.error_text}"
        await self._in_files(lambda: gang_folder.write_flag(gang.folder, gang_folder.REJECTED, reason))
        return True


def _unwritable(error: OSError) -> Notice:
    reason = f"The job's files cannot be written on the server: {error.strerror or error}. It is retried."
    return Notice("FailedScheduling", reason, "Warning", pending=True)
