"""Registry of unfinished gangs in memory; the folders are authoritative."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from paicluster.engines.slurm import gang_folder as folder
from paicluster.engines.slurm.job_states import SlurmJob
from pairuntime.supervisor import claim, exit_record

T = TypeVar("T")

_KEEP_FINISHED_S = 600.0
_UID = re.compile(r"[0-9a-f-]{8,64}")


class InFiles(Protocol):
    """Runs work on the folders of gangs: off the event loop where their file system may not answer."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


def _has_exit_record(path: Path) -> bool:
    return os.path.lexists(path / exit_record.NAME)


@dataclass(slots=True)
class SubmittedGang:
    """A gang and the Slurm job that runs it."""

    uid: str
    folder: Path
    members: tuple[str, ...]
    # The Slurm job id; None until it is known.
    job: str | None = None
    # The account that owns the job: jobs of other accounts may carry any comment.
    owner: int = field(default_factory=os.geteuid)
    # When the job id became known: earlier squeue results say nothing about it.
    submitted: float = 0.0
    # The last state seen in Slurm.
    seen: SlurmJob | None = None
    # When Slurm was first seen to have finished it.
    finished_at: float | None = None
    # The last notice, to report each change once.
    last_notice: str = ""
    # Members not known to have ended.
    live: set[str] = field(default_factory=set)
    # When a gang that was asked to stop is cancelled.
    kill_at: float | None = None
    # A member is running, or has run.
    started: bool = False
    # Slurm is ending a member, and the reason is not known yet.
    ending: bool = False
    # When a member was first seen to have ended.
    ended_at: dict[str, float] = field(default_factory=dict)
    # Slurm rejected it for now, and may accept it later.
    rejected_for_now: bool = False

    def update(self, job: SlurmJob) -> None:
        self.seen = job
        if job.is_over and self.finished_at is None:
            self.finished_at = time.monotonic()

    @property
    def is_steady(self) -> bool:
        """Whether no change that only Slurm knows is expected soon."""
        if self.finished_at is not None:
            return True
        return self.seen is not None and not self.seen.is_pending and self.started and not self.ending

    def end_is_visible(self, uid: str, lag_s: float) -> bool:
        """Whether a task's end has been known long enough for all its writes to be visible here."""
        now = time.monotonic()
        return now - self.ended_at.setdefault(uid, now) >= lag_s

    def is_gone(self, lag_s: float) -> bool:
        """Whether Slurm finished it long enough ago for all writes of its tasks to be visible here."""
        return self.finished_at is not None and time.monotonic() - self.finished_at >= lag_s


class GangRegistry:
    """Gangs by uid and by task."""

    def __init__(self, home: folder.SlurmFolders):
        self._home = home
        self._by_uid: dict[str, SubmittedGang] = {}
        self._of_task: dict[str, SubmittedGang] = {}

    def __iter__(self) -> Iterator[SubmittedGang]:
        return iter(list(self._by_uid.values()))

    def __len__(self) -> int:
        return len(self._by_uid)

    def of(self, uid: str) -> SubmittedGang | None:
        """The gang of a task, if it is known."""
        return self._of_task.get(uid)

    def find(self, uid: str) -> tuple[SubmittedGang, bool] | None:
        """The gang of a task, from its folder if necessary, and whether it was loaded; None: no gang."""
        known = self._of_task.get(uid)
        if known is not None:
            return known, False
        leader = self._home.leader_of(uid)
        if leader is None:
            return None
        path = self._home.gang(leader)
        members = folder.members(path)
        if uid not in members:
            return None
        job = folder.read_flag(path, folder.JOB) or None
        live = {member for member in members if not _has_exit_record(self._home.task(member))} | {uid}
        since = time.monotonic() if job else 0.0
        gang = SubmittedGang(leader, path, members, job, folder.owner_of(path), since, live=live)
        self._add(gang)
        return gang, True

    def is_stale(self, uid: str, owner: int) -> bool:
        """Whether it is a gang of that account of which no task can start any more."""
        if not _UID.fullmatch(uid):  # a job's comment may hold anything
            return False
        known = self._by_uid.get(uid)
        if known is not None and known.kill_at is None and not known.started:
            return False
        path = self._home.gang(uid)
        members = folder.members(path)
        claimed = (os.path.lexists(self._home.task(member) / claim.NAME) for member in members)
        return bool(members) and folder.owner_of(path) == owner and all(claimed)

    def mark_stale(self, uid: str) -> None:
        """Record, before it is cancelled, that the server does so: no user requested it."""
        folder.write_flag(self._home.gang(uid), folder.CANCELLED_AS_STALE, str(time.time()))

    def new(self, uid: str, members: tuple[str, ...], owner: int) -> SubmittedGang:
        """Add a gang whose folder belongs to this account."""
        gang = SubmittedGang(uid, self._home.gang(uid), members, owner=owner, live=set(members))
        self._add(gang)
        return gang

    def _add(self, gang: SubmittedGang) -> None:
        self._by_uid[gang.uid] = gang
        for member in gang.members:
            self._of_task[member] = gang

    def task_ended(self, uid: str) -> None:
        gang = self._of_task.get(uid)
        if gang is not None:
            gang.live.discard(uid)
            if not gang.live:
                self.forget(gang)

    def forget_old(self) -> None:
        """Drop gangs that Slurm finished long ago; `find` loads one from its folder again."""
        for gang in self:
            if gang.is_gone(_KEEP_FINISHED_S):
                self.forget(gang)

    def forget(self, gang: SubmittedGang) -> None:
        self._by_uid.pop(gang.uid, None)
        for member in gang.members:
            self._of_task.pop(member, None)
