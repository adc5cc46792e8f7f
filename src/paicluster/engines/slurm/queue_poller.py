"""Asks Slurm about all of our jobs at once: why one waits, and what took one away."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

from paicluster.engines.interface import Hint, Notice
from paicluster.engines.slurm import gang_folder
from paicluster.engines.slurm.gang_registry import GangRegistry, SubmittedGang
from paicluster.engines.slurm.job_states import RESUMED, SUSPENDED, SlurmJob, pending_notice
from paicluster.engines.slurm.options import SlurmOptions
from paicluster.engines.slurm.slurm_commands import NOT_ANSWERING, SlurmCommands

# A task that was told to stop, and its supervisor with it, is given so much longer than its grace.
FORCE_AFTER_S = 30.0
_LONGEST_PAUSE_S = 30.0


class QueuePoller:
    def __init__(
        self,
        options: SlurmOptions,
        slurm: SlurmCommands,
        gangs: GangRegistry,
        say: Callable[[SubmittedGang, Notice], None],
        hint: Hint,
    ):
        self._options = options
        self._slurm = slurm
        self._gangs = gangs
        self._say = say
        self._hint = hint
        self._busy = asyncio.Event()
        # Whether Slurm may have jobs that are over for us: an earlier server left some, or it was not told.
        self._has_stale_jobs = True
        # Those of them that it had at the last answer.
        self._waited: frozenset[str] = frozenset()
        # Called when Slurm answers again after it did not.
        self.on_answer: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """There is something to watch."""
        self._busy.set()

    async def cancel(self, job_ids: Sequence[str], *how: str) -> None:
        """Tell Slurm; where it does not answer, what must not begin is cancelled when it does."""
        if not await self._slurm.cancel(job_ids, *how):
            self._has_stale_jobs = True
            self.wake()

    async def run(self) -> None:
        """One question for all jobs. The more Slurm has to do, the less often."""
        answered = time.monotonic()
        silent = False
        while True:
            if not self._gangs and not self._has_stale_jobs:
                self._busy.clear()
                await self._busy.wait()
            self._busy.clear()
            asked = time.monotonic()
            doubt, self._has_stale_jobs = self._has_stale_jobs, False
            found = await self._slurm.jobs()
            took = time.monotonic() - asked
            if found is None:
                silent = True
                self._has_stale_jobs = self._has_stale_jobs or doubt
                if time.monotonic() - answered > 2 * self._options.interval_s:
                    self._say_silent()
            else:
                answered = time.monotonic()
                if silent:
                    silent = False
                    self.on_answer()
                await self._compare(found, asked)
                await self._cancel_left(found)
            await self._end_by_force()
            self._gangs.forget_old()
            calm = not silent and all(gang.is_steady for gang in self._gangs)
            pause = self._options.interval_s
            if not silent:
                pause = max(pause, min(10 * took, _LONGEST_PAUSE_S))
            elif not self._gangs:
                await self._rest(_LONGEST_PAUSE_S - pause)
            await asyncio.sleep(pause)
            if calm:
                await self._rest(self._options.calm_interval_s - pause)

    async def _rest(self, seconds: float) -> None:
        """Until there is more to watch, so that whoever comes now is soon told why he waits."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._busy.wait(), seconds)

    def _say_silent(self) -> None:
        for gang in self._gangs:
            if gang.job is None or (gang.seen is None or gang.seen.waiting):
                self._say(gang, NOT_ANSWERING)

    async def _compare(self, found: Mapping[str, Sequence[SlurmJob]], asked: float) -> None:
        missing: list[SubmittedGang] = []
        for gang in self._gangs:
            if gang.job is None:
                continue
            jobs = [job for job in found.get(gang.uid, ()) if job.owner == gang.owner]
            own = next((job for job in jobs if job.id == gang.job), None)
            others = [job.id for job in jobs if job.id != gang.job and not job.over]
            if others:
                await self.cancel(others)
            if own is None:
                if gang.submitted and gang.submitted < asked and gang.over_since is None:
                    missing.append(gang)
                continue
            self._note(gang, own)
        if missing:
            past = await self._slurm.accounting([gang.job for gang in missing if gang.job is not None])
            for gang in missing:
                job = past.get(gang.job or "")
                if job is not None:
                    self._note(gang, job)
                elif gang.over_since is None:
                    # Slurm forgets jobs some time after their end. Without accounting nobody knows more.
                    gang.over_since = time.monotonic()
                    self._look_when_gone(gang)
        for gang in self._gangs:
            self._look_if_gone(gang)

    async def _cancel_left(self, found: Mapping[str, Sequence[SlurmJob]]) -> None:
        """What waits in Slurm's queue and is over for us: it was stopped, or put back there by somebody."""
        waiting = {
            job.id: uid
            for uid, jobs in found.items()
            for job in jobs
            if job.waiting and self._gangs.is_left(uid, job.owner)
        }
        left = []
        for number, uid in waiting.items():
            # One that has just begun was waiting when Slurm was asked: only the next answer counts.
            if number in self._waited:
                # A full disk: it is cancelled once that can be noted.
                with contextlib.suppress(OSError):
                    self._gangs.leave(uid)
                    left.append(number)
        self._waited = frozenset(waiting)
        self._has_stale_jobs = self._has_stale_jobs or bool(waiting)
        if left:
            await self.cancel(left)

    def _look_when_gone(self, gang: SubmittedGang) -> None:
        """Now, for those whose end is told and lacked only Slurm's word, and when the others' is due."""
        for uid in gang.live:
            self._hint(uid)
        loop = asyncio.get_running_loop()
        # A little later: clocks are not that exact.
        loop.call_later(self._options.file_lag_s + 0.02, self._look_if_gone, gang)

    def _look_if_gone(self, gang: SubmittedGang) -> None:
        if gang.live and gang.gone(self._options.file_lag_s):
            self.say_ended(gang)
            for uid in gang.live:
                self._hint(uid)

    def _note(self, gang: SubmittedGang, job: SlurmJob) -> None:
        known = gang.over_since is not None
        stood_still = gang.seen is not None and gang.seen.suspended
        gang.saw(job)
        if not known and gang.over_since is not None:
            self._look_when_gone(gang)
        # Also what was said before: meanwhile it may have waited for something else.
        remark = pending_notice(job)
        if job.suspended:
            remark = SUSPENDED
        elif stood_still and not job.over:
            remark = RESUMED
        if remark is not None:
            self._say(gang, remark)

    def say_ended(self, gang: SubmittedGang) -> None:
        state = gang.seen.state if gang.seen is not None else ""
        words = gang_folder.last_words(gang.folder)
        if not words and state == "FAILED" and gang_folder.never_reported(gang.folder):
            words = "Its node fetched nothing from here: are external-url, python and node-folder right?"
        if state == "COMPLETED" and not words:
            return
        text = (
            f"Slurm ended job {gang.job} as {state}."
            if state
            else f"Slurm does not know job {gang.job} any more."
        )
        self._say(gang, Notice("SlurmJobEnded", f"{text} {words}".strip(), "Warning"))

    async def _end_by_force(self) -> None:
        now = time.monotonic()
        late = [gang for gang in self._gangs if gang.kill_at is not None and gang.kill_at < now and gang.job]
        for gang in late:
            gang.kill_at = now + FORCE_AFTER_S
        if late:
            await self.cancel([gang.job for gang in late if gang.job])
