"""The gangs that are not over, as this server knows them; the folders have the truth."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paicluster.engines.slurm import gang_folder as folder
from paicluster.engines.slurm.job_states import SlurmJob
from pairuntime.supervisor import claim, exit_record

_KEPT_S = 600.0
_UID = re.compile(r"[0-9a-f-]{8,64}")


def _told(path: Path) -> bool:
    return os.path.lexists(path / exit_record.NAME)


@dataclass(slots=True)
class SubmittedGang:
    uid: str
    folder: Path
    members: tuple[str, ...]
    # The number Slurm gave it; None until it has one.
    job: str | None = None
    # The account whose job it is: others can call theirs whatever they like.
    owner: int = field(default_factory=os.geteuid)
    # When that became known here: what Slurm was asked before says nothing about it.
    submitted: float = 0.0
    # What Slurm last said.
    seen: SlurmJob | None = None
    # When Slurm was first seen to be done with it.
    over_since: float | None = None
    said: str = ""
    # Members not yet known to be over.
    live: set[str] = field(default_factory=set)
    # When a gang that was told to stop is ended by force.
    kill_at: float | None = None
    # A member was seen to run, or to have run.
    began: bool = False
    # Slurm told a member to end, and has not said why.
    ending: bool = False
    # When a member was first seen to have ended.
    ends: dict[str, float] = field(default_factory=dict)
    # Slurm did not take it as things were, and may later.
    refused_for_now: bool = False

    def saw(self, job: SlurmJob) -> None:
        self.seen = job
        if job.over and self.over_since is None:
            self.over_since = time.monotonic()

    @property
    def is_steady(self) -> bool:
        """Whether nothing that only Slurm knows is to be expected soon."""
        if self.over_since is not None:
            return True
        return self.seen is not None and not self.seen.waiting and self.began and not self.ending

    def knows_end(self, uid: str, lag_s: float) -> bool:
        """Whether that this one ended has been known for so long that whatever it wrote is visible here."""
        now = time.monotonic()
        return now - self.ends.setdefault(uid, now) >= lag_s

    def gone(self, lag_s: float) -> bool:
        """Whether Slurm is done with it, for so long that whatever its tasks wrote is visible here."""
        return self.over_since is not None and time.monotonic() - self.over_since >= lag_s


class GangRegistry:
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
        """The gang of a task, from its folder if need be, and whether it was new here; None: it has none."""
        known = self._of_task.get(uid)
        if known is not None:
            return known, False
        leader = folder.leader_of(self._home, uid)
        if leader is None:
            return None
        path = self._home.gang(leader)
        members = folder.members(path)
        if uid not in members:
            return None
        job = folder.read_flag(path, folder.JOB) or None
        live = {member for member in members if not _told(self._home.task(member))} | {uid}
        since = time.monotonic() if job else 0.0
        gang = SubmittedGang(leader, path, members, job, folder.owner_of(path), since, live=live)
        self._add(gang)
        return gang, True

    def is_left(self, uid: str, owner: int) -> bool:
        """Whether it is a gang of that account of which nothing can begin any more."""
        if not _UID.fullmatch(uid):  # anybody can call his job anything
            return False
        known = self._by_uid.get(uid)
        if known is not None and known.kill_at is None and not known.began:
            return False
        path = self._home.gang(uid)
        members = folder.members(path)
        claimed = (os.path.lexists(self._home.task(member) / claim.NAME) for member in members)
        return bool(members) and folder.owner_of(path) == owner and all(claimed)

    def leave(self, uid: str) -> None:
        """Note, before it is cancelled, that we do that: nobody has asked for its end."""
        folder.write_flag(self._home.gang(uid), folder.LEFT, str(time.time()))

    def new(self, uid: str, members: tuple[str, ...]) -> SubmittedGang:
        path = self._home.gang(uid)
        gang = SubmittedGang(uid, path, members, owner=folder.owner_of(path), live=set(members))
        self._add(gang)
        return gang

    def _add(self, gang: SubmittedGang) -> None:
        self._by_uid[gang.uid] = gang
        for member in gang.members:
            self._of_task[member] = gang

    def task_over(self, uid: str) -> None:
        gang = self._of_task.get(uid)
        if gang is not None:
            gang.live.discard(uid)
            if not gang.live:
                self.forget(gang)

    def forget_old(self) -> None:
        """Gangs that Slurm has long been done with; whoever asks for one finds it by its folder."""
        for gang in self:
            if gang.gone(_KEPT_S):
                self.forget(gang)

    def forget(self, gang: SubmittedGang) -> None:
        self._by_uid.pop(gang.uid, None)
        for member in gang.members:
            self._of_task.pop(member, None)
