"""Work journal: the jobs that a server is working on, so that the next server knows what killed it.

A file with one fixed-size entry for each piece of work in progress. An entry is written when the work begins
and erased when it ends, so what is left in the file was in progress when the process died. Nothing is synced:
the page cache survives the death of a process, and a crash of the machine is not held against a job.

The jobs that are left are *suspects*. The next server lets each of them work alone, so that a second death
points at one job. A suspect that gets through is cleared; one that dies again is *condemned*.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

log = logging.getLogger("paicluster.work")

T = TypeVar("T")

_HEADER_BYTES = 64
_ENTRY_BYTES = 32
# More work at once is not journaled; no server launches as many jobs at once. All of them take 128 KiB.
_MAX_ENTRIES = 4096
_MAX_DEATHS = 2
# A suspect waits this long for other work to end, and other work for suspects: the work of some jobs takes
# minutes, and a job that is suspected wrongly must not hold up a cluster.
_ISOLATION_TIMEOUT_S = 10.0
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


class Step(Enum):
    """A piece of work for one job that every start of a server repeats until it is done."""

    LOAD = "load"
    RENDER = "render"
    LAUNCH = "launch"
    UNPACK = "unpack"


# Steps without which the job cannot run.
JOB_STEPS = frozenset((Step.LOAD, Step.RENDER, Step.LAUNCH))
# Steps that never yield to the event loop: other work on the loop only waits meanwhile.
_UNINTERRUPTED = frozenset((Step.LOAD, Step.RENDER))
# Work of a thread goes on beside them.
_UNINTERRUPTED_OR_IN_THREAD = _UNINTERRUPTED | {Step.UNPACK}

_DOING = {
    Step.LOAD: "reading this job from its database",
    Step.RENDER: "rendering the scripts of this job",
    Step.LAUNCH: "launching this job",
    Step.UNPACK: "copying the sources of this job to the storage",
}


@dataclass(slots=True)
class _Suspect:
    deaths: int
    steps: set[Step] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _JournalEntry:
    job_id: int
    step: Step
    # Deaths of servers over this job before the work began.
    deaths: int
    in_progress: bool

    def encode(self) -> bytes:
        text = f"{self.job_id:<16}{self.step.value:<8}{self.deaths} {int(self.in_progress)}"
        return f"{text:<{_ENTRY_BYTES - 1}}\n".encode()


_NO_ENTRY = b" " * (_ENTRY_BYTES - 1) + b"\n"


class WorkJournal:
    """Work in progress and suspects. Not thread-safe: used on the event loop only."""

    def __init__(self, path: Path | None = None, *, isolation_timeout_s: float = _ISOLATION_TIMEOUT_S):
        self._path = path
        self._fd = -1
        self._free: list[int] = []
        self._suspects: dict[int, _Suspect] = {}
        # Entries that keep a suspect in the file until it is cleared.
        self._kept: dict[tuple[int, Step], int] = {}
        self._isolation = _Isolation(isolation_timeout_s)

    def open(self) -> None:
        """Read what the previous server was working on when it died."""
        self._free = list(range(_MAX_ENTRIES))
        if self._path is None:
            return
        boot = _boot_id()
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            content = os.pread(self._fd, _HEADER_BYTES + _ENTRY_BYTES * _MAX_ENTRIES, 0)
            same_boot = content[:_HEADER_BYTES].split() == [boot]
            self._suspects = _suspects(_read_entries(content[_HEADER_BYTES:]), same_boot=same_boot)
            # Written whole: later writes then need no disk space.
            kept = bytearray(boot.ljust(_HEADER_BYTES - 1) + b"\n" + _NO_ENTRY * _MAX_ENTRIES)
            for job_id, suspect in self._suspects.items():
                for step in suspect.steps:
                    if not self._free:
                        break
                    slot = self._kept[job_id, step] = self._free.pop()
                    entry = _JournalEntry(job_id, step, suspect.deaths, in_progress=False)
                    start = _HEADER_BYTES + slot * _ENTRY_BYTES
                    kept[start : start + _ENTRY_BYTES] = entry.encode()
            os.pwrite(self._fd, kept, 0)
        except OSError as error:
            log.warning("Cannot write the work journal, the server runs without it: %s", error)
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # -- suspects ------------------------------------------------------------------------------

    def suspects(self) -> dict[int, str]:
        """What the previous server was doing for each suspect when it died, by job."""
        return {job_id: _doing(suspect) for job_id, suspect in self._suspects.items()}

    def condemned(self) -> set[int]:
        """Jobs that must not be started: servers died twice in a row over them."""
        return {job_id for job_id in self._suspects if self.verdict(job_id)}

    def verdict(self, job_id: int, steps: Collection[Step] = JOB_STEPS) -> str:
        """Why these steps must not be repeated for this job; empty when they may be."""
        suspect = self._suspects.get(job_id)
        if suspect is None or suspect.deaths < _MAX_DEATHS or suspect.steps.isdisjoint(steps):
            return ""
        return f"The cluster's server died {suspect.deaths} times in a row while it was {_doing(suspect)}."

    def settle(self, job_id: int, steps: Collection[Step] = JOB_STEPS) -> None:
        """Clear a suspect job whose steps succeeded, or will not be repeated."""
        suspect = self._suspects.get(job_id)
        if suspect is None:
            return
        for step in suspect.steps.intersection(steps):
            suspect.steps.discard(step)
            slot = self._kept.pop((job_id, step), None)
            if slot is not None:
                self._erase(slot)
        if not suspect.steps:
            del self._suspects[job_id]

    # -- work ----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def work(self, job_id: int, step: Step) -> Any:
        """Journal work that is in progress inside of the block, which gets it as a `Work`."""
        work = Work(self, job_id, step)
        await work.resume()
        try:
            yield work
        finally:
            work.end()

    @contextlib.contextmanager
    def short_work(self, job_id: int, step: Step) -> Iterator[None]:
        """Journal work that never yields to the event loop, so that it is alone there anyway."""
        slot = self._write(job_id, step)
        try:
            yield
        finally:
            self._erase(slot)
            self.settle(job_id, (step,))

    def _write(self, job_id: int, step: Step, slot: int | None = None) -> int | None:
        if slot is None:
            if not self._free:
                return None
            slot = self._free.pop()
        suspect = self._suspects.get(job_id)
        entry = _JournalEntry(job_id, step, suspect.deaths if suspect is not None else 0, in_progress=True)
        self._write_slot(slot, entry.encode())
        return slot

    def _erase(self, slot: int | None) -> None:
        if slot is not None:
            self._write_slot(slot, _NO_ENTRY)
            self._free.append(slot)

    def _write_slot(self, slot: int, entry: bytes) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # a broken disk shows elsewhere
                os.pwrite(self._fd, entry, _HEADER_BYTES + slot * _ENTRY_BYTES)


class Work:
    """Work for one job. While it waits for something else, it is not in progress."""

    def __init__(self, journal: WorkJournal, job_id: int, step: Step):
        self._journal = journal
        self._job_id = job_id
        self._step = step
        self._steps = {step}
        self._slot: int | None = None
        self._leave: Callable[[], None] | None = None

    def advance(self, step: Step) -> None:
        """Go on with the next step. The job is cleared once all of them are through."""
        self._step = step
        self._steps.add(step)
        if self._slot is not None:
            self._slot = self._journal._write(self._job_id, step, self._slot)

    async def resume(self) -> None:
        suspects = self._journal._suspects
        if suspects:
            self._leave = await self._journal._isolation.enter(alone=self._job_id in suspects)
        self._slot = self._journal._write(self._job_id, self._step)

    def pause(self) -> None:
        self._journal._erase(self._slot)
        self._slot = None
        if self._leave is not None:
            self._leave()
            self._leave = None

    def end(self) -> None:
        self.pause()
        self._journal.settle(self._job_id, self._steps)

    def outside(self, waited_for: Awaitable[T]) -> Awaitable[T]:
        """Awaits something that others do: a server that dies meanwhile did not die over this job."""
        return _Outside(self, waited_for)


class _Outside(Generic[T]):
    """An awaitable that can be awaited as often as the one inside."""

    def __init__(self, work: Work, waited_for: Awaitable[T]):
        self._work = work
        self._waited_for = waited_for

    def __await__(self) -> Generator[Any, Any, T]:
        return self._wait().__await__()

    async def _wait(self) -> T:
        self._work.pause()
        result = await self._waited_for
        await self._work.resume()
        return result


class _Isolation:
    """Lets suspects work alone: one at a time, and nothing else beside it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._others = 0
        self._alone = 0
        self._waiting_alone = 0
        self._waiters: list[asyncio.Future[None]] = []

    async def enter(self, *, alone: bool) -> Callable[[], None]:
        """Wait until the work may begin; returns the function that ends it."""
        if alone:
            self._waiting_alone += 1
            try:
                await self._wait_until(lambda: not self._others and not self._alone)
            finally:
                self._waiting_alone -= 1
            self._alone += 1
            return self._leave_alone
        await self._wait_until(lambda: not self._alone and not self._waiting_alone)
        self._others += 1
        return self._leave_others

    def _leave_alone(self) -> None:
        self._alone -= 1
        self._wake()

    def _leave_others(self) -> None:
        self._others -= 1
        self._wake()

    async def _wait_until(self, is_free: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while not is_free():
            waiter = loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout(deadline - loop.time()):
                    await waiter
            except TimeoutError:
                return

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _doing(suspect: _Suspect) -> str:
    return " or ".join(_DOING[step] for step in Step if step in suspect.steps)


def _read_entries(content: bytes) -> Iterator[_JournalEntry]:
    for line in content.split(b"\n"):
        try:
            job_id, step, deaths, in_progress = line.decode().split()
            yield _JournalEntry(int(job_id), Step(step), int(deaths), in_progress=in_progress == "1")
        except ValueError:
            continue  # empty, or written by another version


def _suspects(entries: Iterator[_JournalEntry], *, same_boot: bool) -> dict[int, _Suspect]:
    """Suspects of a server that left these entries.

    ``same_boot``: else the entries may be older than the crash of the machine, and count for nothing.
    """
    known: dict[int, _Suspect] = {}
    in_progress: list[_JournalEntry] = []
    for entry in entries:
        if entry.deaths:
            suspect = known.setdefault(entry.job_id, _Suspect(entry.deaths))
            suspect.deaths = max(suspect.deaths, entry.deaths)
            suspect.steps.add(entry.step)
        if entry.in_progress and same_boot:
            in_progress.append(entry)
    if any(entry.step in _UNINTERRUPTED for entry in in_progress):
        in_progress = [entry for entry in in_progress if entry.step in _UNINTERRUPTED_OR_IN_THREAD]
    died: dict[int, set[Step]] = {}
    for entry in in_progress:
        died.setdefault(entry.job_id, set()).add(entry.step)
    if known.keys().isdisjoint(died):
        # The server died, or was stopped, over no suspect: their deaths are not in a row.
        known = {job_id: suspect for job_id, suspect in known.items() if suspect.deaths >= _MAX_DEATHS}
    for job_id, steps in died.items():
        before = known.get(job_id)
        known[job_id] = _Suspect(min(9, (before.deaths if before is not None else 0) + 1), steps)
    return known


def _boot_id() -> bytes:
    try:
        return _BOOT_ID_FILE.read_bytes().strip()
    except OSError:
        return b"unknown"
