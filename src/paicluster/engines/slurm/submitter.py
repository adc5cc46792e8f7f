"""Hands gangs to Slurm: each once, however often this server or Slurm's controller dies in between."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any

from paicluster.engines.interface import Notice
from paicluster.engines.slurm import gang_folder, untrusted_files
from paicluster.engines.slurm.gang_registry import SubmittedGang
from paicluster.engines.slurm.job_states import SlurmJob
from paicluster.engines.slurm.slurm_commands import NOT_ANSWERING, CommandResult, SlurmCommands

log = logging.getLogger(__name__)

_AT_ONCE = 8
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
# Of those that Slurm does not take as things are one is tried so often; the next at once when one was taken.
_ONE_EVERY_S = 1.0
# No job of Slurm has this number.
_FORGOTTEN = "0"


class Submitter:
    def __init__(
        self,
        slurm: SlurmCommands,
        wanted: Callable[[SubmittedGang], bool],
        say: Callable[[SubmittedGang, Notice], None],
        done: Callable[[SubmittedGang], None],
    ):
        self._slurm = slurm
        self._wanted = wanted
        self._say = say
        self._done = done
        self._room = asyncio.Semaphore(_AT_ONCE)
        # Those who were told "not now" come one after the other.
        self._turn = asyncio.Lock()
        self._asking = asyncio.Lock()
        # The one that is to be asked next.
        self._question: asyncio.Task[dict[str, list[SlurmJob]] | None] | None = None
        self._questions: set[asyncio.Task[Any]] = set()
        # Set when Slurm answers again.
        self._answers = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, gang: SubmittedGang) -> None:
        if gang.uid not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._submit(gang))
            self._tasks[gang.uid] = task
            task.add_done_callback(lambda _: self._tasks.pop(gang.uid, None))

    def slurm_answers_again(self) -> None:
        """Whoever waits for that tries now."""
        self._answers.set()
        self._answers.clear()

    async def close(self) -> None:
        """What is being submitted is found again by the next server."""
        tasks = [*self._tasks.values(), *self._questions]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _submit(self, gang: SubmittedGang) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                over = await (self._try_in_turn(gang) if gang.refused_for_now else self._try(gang))
            except Exception:
                log.exception("The gang %s could not be submitted; it is tried again.", gang.uid)
                over = False
            if over:
                self._done(gang)
                return
            try:
                await asyncio.wait_for(self._answers.wait(), pause)
                pause = _FIRST_PAUSE_S
            except TimeoutError:
                pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _try_in_turn(self, gang: SubmittedGang) -> bool:
        """What keeps one from being taken keeps the others: a limit that thousands have run into."""
        async with self._turn:
            over = await self._try(gang)
            if not over:
                await asyncio.sleep(_ONE_EVERY_S)
            return over

    async def _try(self, gang: SubmittedGang) -> bool:
        """One attempt at it. False: it must be tried again."""
        if not gang.folder.exists():
            return True  # removed meanwhile
        if gang_folder.read_flag(
            gang.folder, gang_folder.SUBMITTING
        ) is not None and not await self._find_lost_submission(gang):
            return gang.job is not None
        if gang.job is not None or not self._wanted(gang):
            return True  # it is there, or was told to stop before it came so far
        gang_folder.write_flag(gang.folder, gang_folder.SUBMITTING, str(time.time()))
        words = json.loads((gang.folder / gang_folder.COMMAND).read_text())
        async with self._room:
            answer = await self._slurm.ask(words)
        if answer.status == 0:
            number = answer.out.strip().rpartition("\n")[2].partition(";")[0]
            if not number.isdecimal():
                # It was asked for something else than to submit, such as for its version.
                answer = CommandResult(
                    1, "", f"sbatch gave no number of a job: {untrusted_files.sanitize(number)}"
                )
            else:
                self._record_job_id(gang, number)
                return True
        return self._failed(gang, answer)

    async def _find_lost_submission(self, gang: SubmittedGang) -> bool:
        """Somebody tried before and was not answered: does Slurm have it? True: it does not."""
        found = await self._jobs()
        if found is None:
            self._say(gang, NOT_ANSWERING)
            return False
        own = next((job for job in found.get(gang.uid, ()) if job.owner == gang.owner), None)
        if own is not None:
            self._record_job_id(gang, own.id)
            return False
        if gang_folder.read_flag(gang.folder, gang_folder.OWNER) is not None:
            # It has even begun, and Slurm has forgotten it since. Its number is only an account's word.
            self._record_job_id(gang, _FORGOTTEN)
            return False
        return True

    async def _jobs(self) -> dict[str, list[SlurmJob]] | None:
        """One question for all who need to know now: asked after each of them came."""
        if self._question is None:
            self._question = asyncio.create_task(self._ask())
            self._questions.add(self._question)
            self._question.add_done_callback(self._questions.discard)
        return await asyncio.shield(self._question)

    async def _ask(self) -> dict[str, list[SlurmJob]] | None:
        async with self._asking:
            self._question = None
            found = await self._slurm.jobs()
            if found is None:
                await asyncio.sleep(_FIRST_PAUSE_S)
            return found

    def _record_job_id(self, gang: SubmittedGang, job: str) -> None:
        gang_folder.write_flag(gang.folder, gang_folder.JOB, job)
        gang.job = job
        gang.submitted = time.monotonic()

    def _failed(self, gang: SubmittedGang, answer: CommandResult) -> bool:
        if answer.down:
            self._say(gang, NOT_ANSWERING)
            return False
        # It is known not to have been taken.
        (gang.folder / gang_folder.SUBMITTING).unlink(missing_ok=True)
        gang.refused_for_now = answer.is_retryable
        if answer.is_retryable:
            self._say(gang, Notice("FailedScheduling", f"Slurm says: {answer.error_text}", "Warning"))
            return False
        log.warning("sbatch refuses %s: %s", gang.uid, answer.error_text)
        self._say(
            gang, Notice("SlurmRefused", f"Slurm does not take the job: {answer.error_text}", "Warning")
        )
        gang_folder.write_flag(
            gang.folder, gang_folder.REFUSED, f"Slurm does not take the job: {answer.error_text}"
        )
        return True
