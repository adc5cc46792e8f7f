"""Hands gangs to Slurm: each once, however often this server or Slurm's controller dies in between."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any

from paicluster.engines.interface import Remark
from paicluster.engines.slurm import folder, told
from paicluster.engines.slurm.asking import NOT_ANSWERING, Answer, Slurm
from paicluster.engines.slurm.gangs import Gang
from paicluster.engines.slurm.states import SlurmJob

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
        slurm: Slurm,
        wanted: Callable[[Gang], bool],
        say: Callable[[Gang, Remark], None],
        done: Callable[[Gang], None],
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

    def add(self, gang: Gang) -> None:
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

    async def _submit(self, gang: Gang) -> None:
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

    async def _try_in_turn(self, gang: Gang) -> bool:
        """What keeps one from being taken keeps the others: a limit that thousands have run into."""
        async with self._turn:
            over = await self._try(gang)
            if not over:
                await asyncio.sleep(_ONE_EVERY_S)
            return over

    async def _try(self, gang: Gang) -> bool:
        """One attempt at it. False: it must be tried again."""
        if not gang.folder.exists():
            return True  # removed meanwhile
        if folder.read_mark(gang.folder, folder.SUBMITTING) is not None and not await self._ask_first(gang):
            return gang.job is not None
        if gang.job is not None or not self._wanted(gang):
            return True  # it is there, or was told to stop before it came so far
        folder.write_mark(gang.folder, folder.SUBMITTING, str(time.time()))
        words = json.loads((gang.folder / folder.COMMAND).read_text())
        async with self._room:
            answer = await self._slurm.ask(words)
        if answer.status == 0:
            number = answer.out.strip().rpartition("\n")[2].partition(";")[0]
            if not number.isdecimal():
                # It was asked for something else than to submit, such as for its version.
                answer = Answer(1, "", f"sbatch gave no number of a job: {told.text(number)}")
            else:
                self._has(gang, number)
                return True
        return self._failed(gang, answer)

    async def _ask_first(self, gang: Gang) -> bool:
        """Somebody tried before and was not answered: does Slurm have it? True: it does not."""
        found = await self._jobs()
        if found is None:
            self._say(gang, NOT_ANSWERING)
            return False
        own = next((job for job in found.get(gang.uid, ()) if job.owner == gang.owner), None)
        if own is not None:
            self._has(gang, own.id)
            return False
        if folder.read_mark(gang.folder, folder.OWNER) is not None:
            # It has even begun, and Slurm has forgotten it since. Its number is only an account's word.
            self._has(gang, _FORGOTTEN)
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

    def _has(self, gang: Gang, job: str) -> None:
        folder.write_mark(gang.folder, folder.JOB, job)
        gang.job = job
        gang.submitted = time.monotonic()

    def _failed(self, gang: Gang, answer: Answer) -> bool:
        if answer.down:
            self._say(gang, NOT_ANSWERING)
            return False
        # It is known not to have been taken.
        (gang.folder / folder.SUBMITTING).unlink(missing_ok=True)
        gang.refused_for_now = answer.not_now
        if answer.not_now:
            self._say(gang, Remark("FailedScheduling", f"Slurm says: {answer.words}", "Warning"))
            return False
        log.warning("sbatch refuses %s: %s", gang.uid, answer.words)
        self._say(gang, Remark("SlurmRefused", f"Slurm does not take the job: {answer.words}", "Warning"))
        folder.write_mark(gang.folder, folder.REFUSED, f"Slurm does not take the job: {answer.words}")
        return True
