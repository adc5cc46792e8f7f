"""Jobs on their way to a start: held back by other jobs, waiting for room, or too large for ever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paicluster.scheduler.pending_jobs import DEFAULT_LEVEL, LEVELS, PendingJobs, QueuedJob
from paicluster.scheduler.resource_requests import Dependency, decode
from paicluster.store.rows import PendingJob


@dataclass(frozen=True, slots=True)
class DependencyStatus:
    """``waits_for``: the jobs that are still to be over. ``broken``: why it never will go on."""

    waits_for: tuple[str, ...] = ()
    broken: str = ""


def level_of(priority: str | None) -> str:
    return priority if priority in LEVELS else DEFAULT_LEVEL


class PendingQueue:
    """Jobs here are not in hand: what is kept of each is what the scheduler compares."""

    def __init__(self) -> None:
        self.waiting = PendingJobs()
        self._never: set[int] = set()
        self._held: dict[int, PendingJob] = {}
        self._dependents: dict[str, set[int]] = {}

    def __bool__(self) -> bool:
        return bool(len(self.waiting) or self._never or self._held)

    def clear(self) -> None:
        self.waiting.clear()
        self._never.clear()
        self._held.clear()
        self._dependents.clear()

    def add(self, job: PendingJob) -> tuple[Dependency, ...]:
        """Take a job in. What it waits for is given back: until that is over it is held."""
        request = decode(job.need)
        if not request.after:
            self._wait(job)
            return ()
        self._held[job.id] = job
        for condition in request.after:
            self._dependents.setdefault(condition.framework, set()).add(job.id)
        return request.after

    def release(self, job_id: int) -> None:
        """What held it is over: now it waits for room."""
        job = self._held.pop(job_id, None)
        if job is not None:
            self._forget_conditions(job)
            self._wait(job)

    def add_started(self, job: QueuedJob) -> None:
        """A job of which a part is still to be started."""
        self.waiting.remove(job.job_id)
        self._never.discard(job.job_id)
        self.waiting.add(job)

    def mark_unschedulable(self, job_id: int) -> None:
        """It can never fit, as things are."""
        self.waiting.remove(job_id)
        self._never.add(job_id)

    def take_unschedulable(self) -> set[int]:
        """Those that could never fit, as things were: they are to be looked at again."""
        aside, self._never = self._never, set()
        return aside

    def remove(self, job_id: int) -> None:
        self.waiting.remove(job_id)
        self._never.discard(job_id)
        job = self._held.pop(job_id, None)
        if job is not None:
            self._forget_conditions(job)

    def conditions(self, job_id: int) -> tuple[Dependency, ...]:
        job = self._held.get(job_id)
        return () if job is None else decode(job.need).after

    def waiting_for(self, framework: str) -> Iterable[int]:
        return tuple(self._dependents.get(framework, ()))

    def _wait(self, job: PendingJob) -> None:
        need = decode(job.need).need
        self.waiting.add(QueuedJob(job.id, job.vc, job.username, level_of(job.priority), need))

    def _forget_conditions(self, job: PendingJob) -> None:
        for condition in decode(job.need).after:
            dependents = self._dependents.get(condition.framework)
            if dependents is not None:
                dependents.discard(job.id)
                if not dependents:
                    del self._dependents[condition.framework]


def check_dependencies(conditions: Iterable[Dependency], states: Mapping[str, str]) -> DependencyStatus:
    """``states`` has the state of every job that there is."""
    waits_for = []
    for condition in conditions:
        state = states.get(condition.framework)
        if state is None:
            return DependencyStatus(
                broken=f"The job {condition.framework} that it waits for is not there any more."
            )
        over = state in ("SUCCEEDED", "FAILED", "STOPPED")
        if over and condition.success and state != "SUCCEEDED":
            return DependencyStatus(
                broken=f"The job {condition.framework} that it waits for ended as {state}."
            )
        if not over:
            waits_for.append(condition.framework)
    return DependencyStatus(tuple(waits_for))
