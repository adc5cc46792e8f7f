"""Poller of Slurm's queue: one squeue call for all jobs, for pending reasons and lost jobs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from paicluster.engines.interface import Hint, Notice
from paicluster.engines.slurm import gang_folder
from paicluster.engines.slurm.gang_registry import GangRegistry, InFiles, SubmittedGang
from paicluster.engines.slurm.job_states import RESUMED, SUSPENDED, SlurmJob, pending_notice
from paicluster.engines.slurm.options import SlurmOptions
from paicluster.engines.slurm.slurm_commands import UNAVAILABLE, SlurmCommands

# A task asked to stop, with its supervisor, gets this much longer than its grace period before scancel.
CANCEL_AFTER_S = 30.0
_MAX_INTERVAL_S = 30.0


class QueuePoller:
    """Updates the registered gangs from squeue and sacct, and cancels stale jobs."""

    def __init__(
        self,
        options: SlurmOptions,
        slurm: SlurmCommands,
        gangs: GangRegistry,
        notify: Callable[[SubmittedGang, Notice], None],
        hint: Hint,
        in_files: InFiles,
    ):
        """``in_files``: runs what reads and writes the folders of gangs."""
        self._options = options
        self._slurm = slurm
        self._gangs = gangs
        self._notify = notify
        self._hint = hint
        self._in_files = in_files
        # Tasks whose ends are being described.
        self._ending: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()
        # Whether Slurm may have stale jobs: of an earlier server, or whose scancel failed.
        self._may_have_stale_jobs = True
        # Stale jobs that were pending in the last result.
        self._stale_pending: frozenset[str] = frozenset()
        # Called when Slurm is available again.
        self.on_available: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """Wake the poller: there are gangs to watch."""
        self._woken.set()

    async def cancel(self, job_ids: Sequence[str], *how: str) -> None:
        """Call scancel; if Slurm is unavailable, stale jobs are cancelled when it is available again."""
        if not await self._slurm.cancel(job_ids, *how):
            self._may_have_stale_jobs = True
            self.wake()

    async def run(self) -> None:
        """Poll with one squeue call for all jobs, less often the longer squeue takes."""
        last_result = time.monotonic()
        unavailable = False
        while True:
            if not self._gangs and not self._may_have_stale_jobs:
                self._woken.clear()
                await self._woken.wait()
            self._woken.clear()
            polled = time.monotonic()
            may_have_stale_jobs, self._may_have_stale_jobs = self._may_have_stale_jobs, False
            jobs = await self._slurm.jobs()
            took = time.monotonic() - polled
            if jobs is None:
                unavailable = True
                self._may_have_stale_jobs = self._may_have_stale_jobs or may_have_stale_jobs
                if time.monotonic() - last_result > 2 * self._options.interval_s:
                    self._notify_unavailable()
            else:
                last_result = time.monotonic()
                if unavailable:
                    unavailable = False
                    self.on_available()
                await self._compare(jobs, polled)
                await self._cancel_stale(jobs)
            await self._cancel_overdue()
            self._gangs.forget_old()
            is_steady = not unavailable and all(gang.is_steady for gang in self._gangs)
            interval_s = self._options.interval_s
            if not unavailable:
                interval_s = max(interval_s, min(10 * took, _MAX_INTERVAL_S))
            elif not self._gangs:
                await self._wait(_MAX_INTERVAL_S - interval_s)
            await asyncio.sleep(interval_s)
            if is_steady:
                await self._wait(self._options.steady_interval_s - interval_s)

    async def _wait(self, seconds: float) -> None:
        """Wait, or until a gang is added, so that its pending reason is known soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _notify_unavailable(self) -> None:
        for gang in self._gangs:
            if gang.job is None or (gang.seen is None or gang.seen.is_pending):
                self._notify(gang, UNAVAILABLE)

    async def _compare(self, found: Mapping[str, Sequence[SlurmJob]], polled: float) -> None:
        missing: list[SubmittedGang] = []
        for gang in self._gangs:
            if gang.job is None:
                continue
            jobs = [job for job in found.get(gang.uid, ()) if job.owner == gang.owner]
            own = next((job for job in jobs if job.id == gang.job), None)
            others = [job.id for job in jobs if job.id != gang.job and not job.is_over]
            if others:
                await self.cancel(others)
            if own is None:
                if gang.submitted and gang.submitted < polled and gang.finished_at is None:
                    missing.append(gang)
                continue
            self._update(gang, own)
        if missing:
            accounted = await self._slurm.accounting([gang.job for gang in missing if gang.job is not None])
            for gang in missing:
                job = accounted.get(gang.job or "")
                if job is not None:
                    self._update(gang, job)
                elif gang.finished_at is None:
                    # Slurm drops jobs some time after their end. Without accounting nothing more is known.
                    gang.finished_at = time.monotonic()
                    self._observe_when_gone(gang)
        for gang in self._gangs:
            await self._observe_if_gone(gang)

    async def _cancel_stale(self, found: Mapping[str, Sequence[SlurmJob]]) -> None:
        """Cancel pending Slurm jobs of finished gangs: they were stopped, or requeued manually."""
        pending = await self._in_files(
            lambda: {
                job.id: uid
                for uid, jobs in found.items()
                for job in jobs
                if job.is_pending and self._gangs.is_stale(uid, job.owner)
            }
        )
        stale = []
        for number, uid in pending.items():
            # One that has just started was pending in this result: only the second result counts.
            if number in self._stale_pending:
                # On a full disk it is cancelled once that can be recorded.
                with contextlib.suppress(OSError):
                    await self._in_files(partial(self._gangs.mark_stale, uid))
                    stale.append(number)
        self._stale_pending = frozenset(pending)
        self._may_have_stale_jobs = self._may_have_stale_jobs or bool(pending)
        if stale:
            await self.cancel(stale)

    def _observe_when_gone(self, gang: SubmittedGang) -> None:
        """Observe the tasks now, for those that have ended already, and again when all writes are visible."""
        for uid in gang.live:
            self._hint(uid)
        loop = asyncio.get_running_loop()
        # A little later: timers are not exact.
        loop.call_later(self._options.file_lag_s + 0.02, self._observe_in_background, gang)

    def _observe_in_background(self, gang: SubmittedGang) -> None:
        task = asyncio.get_running_loop().create_task(self._observe_if_gone(gang))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _observe_if_gone(self, gang: SubmittedGang) -> None:
        if gang.live and gang.is_gone(self._options.file_lag_s):
            await self.notify_ended(gang)
            for uid in gang.live:
                self._hint(uid)

    def _update(self, gang: SubmittedGang, job: SlurmJob) -> None:
        was_finished = gang.finished_at is not None
        was_suspended = gang.seen is not None and gang.seen.is_suspended
        gang.update(job)
        if not was_finished and gang.finished_at is not None:
            self._observe_when_gone(gang)
        # Also a repeated reason: it may have been pending for another one meanwhile.
        notice = pending_notice(job)
        if job.is_suspended:
            notice = SUSPENDED
        elif was_suspended and not job.is_over:
            notice = RESUMED
        if notice is not None:
            self._notify(gang, notice)

    async def notify_ended(self, gang: SubmittedGang) -> None:
        state = gang.seen.state if gang.seen is not None else ""
        output = await self._in_files(lambda: _output_of(gang, state))
        if state == "COMPLETED" and not output:
            return
        text = (
            f"Slurm ended job {gang.job} as {state}." if state else f"Slurm no longer knows job {gang.job}."
        )
        self._notify(gang, Notice("SlurmJobEnded", f"{text} {output}".strip(), "Warning"))

    async def _cancel_overdue(self) -> None:
        now = time.monotonic()
        overdue = [
            gang for gang in self._gangs if gang.kill_at is not None and gang.kill_at < now and gang.job
        ]
        for gang in overdue:
            gang.kill_at = now + CANCEL_AFTER_S
        if overdue:
            await self.cancel([gang.job for gang in overdue if gang.job])


def _output_of(gang: SubmittedGang, state: str) -> str:
    """What the job of a gang that has ended wrote beside its tasks, or why that is nothing."""
    output = gang_folder.output_tail(gang.folder)
    if not output and state == "FAILED" and gang_folder.never_reported(gang.folder):
        return "Its node downloaded nothing from the server: check external-url, python and node-folder."
    return output
