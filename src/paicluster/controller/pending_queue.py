"""Queue of pending jobs: blocked by dependencies, waiting for resources, or unschedulable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paicluster.scheduler.pending_jobs import DEFAULT_PRIORITY_CLASS, PRIORITY_CLASSES, PendingJobs, QueuedJob
from paicluster.scheduler.resource_requests import Dependency, decode
from paicluster.store.rows import PendingJob


@dataclass(frozen=True, slots=True)
class DependencyStatus:
    """``waits_for``: unfinished jobs it depends on. ``broken``: why that can never be satisfied."""

    waits_for: tuple[str, ...] = ()
    broken: str = ""


def priority_class_of(priority: str | None) -> str:
    return priority if priority in PRIORITY_CLASSES else DEFAULT_PRIORITY_CLASS


class PendingQueue:
    """Pending jobs, most of them not loaded: kept is what the scheduler compares."""

    def __init__(self) -> None:
        self.pending = PendingJobs()
        self._unschedulable: set[int] = set()
        # Jobs with unfinished dependencies; the same jobs by the job they depend on; and those whose
        # dependencies are to be checked, because they are new or a dependency finished.
        self._blocked: dict[int, PendingJob] = {}
        self._dependents: dict[str, set[int]] = {}
        self.to_recheck: set[int] = set()

    def __bool__(self) -> bool:
        return bool(len(self.pending) or self._unschedulable or self._blocked)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self.pending or job_id in self._unschedulable or job_id in self._blocked

    def clear(self) -> None:
        self.pending.clear()
        self._unschedulable.clear()
        self._blocked.clear()
        self._dependents.clear()
        self.to_recheck.clear()

    def add(self, job: PendingJob) -> None:
        """Enqueue a job. One with dependencies is blocked until `release`."""
        dependencies = decode(job.resource_request).dependencies
        if not dependencies:
            self._add_pending(job)
            return
        self._blocked[job.id] = job
        for dependency in dependencies:
            self._dependents.setdefault(dependency.framework, set()).add(job.id)
        self.to_recheck.add(job.id)

    def release(self, job_id: int) -> None:
        """Unblock a job whose dependencies are satisfied: now it waits for resources."""
        job = self._blocked.pop(job_id, None)
        if job is not None:
            self._forget_dependencies(job)
            self._add_pending(job)

    def add_started(self, job: QueuedJob) -> None:
        """Enqueue a loaded job, all or some of whose tasks are still to be started."""
        self.pending.remove(job.job_id)
        self._unschedulable.discard(job.job_id)
        self.pending.add(job)

    def mark_unschedulable(self, job_id: int) -> None:
        """Mark a job that does not fit on the cluster at all."""
        self.pending.remove(job_id)
        self._unschedulable.add(job_id)

    def take_unschedulable(self) -> set[int]:
        """Remove and return the unschedulable jobs, because the capacity changed."""
        jobs, self._unschedulable = self._unschedulable, set()
        return jobs

    def remove(self, job_id: int) -> None:
        self.pending.remove(job_id)
        self._unschedulable.discard(job_id)
        job = self._blocked.pop(job_id, None)
        if job is not None:
            self._forget_dependencies(job)

    def recheck_dependents(self, framework: str) -> None:
        """Recheck the jobs that depend on a finished one."""
        self.to_recheck.update(self._dependents.get(framework, ()))

    def take_to_recheck(self) -> dict[int, tuple[Dependency, ...]]:
        """Remove and return the jobs to recheck, with their dependencies."""
        job_ids, self.to_recheck = self.to_recheck, set()
        return {job_id: self._dependencies(job_id) for job_id in job_ids}

    def _dependencies(self, job_id: int) -> tuple[Dependency, ...]:
        job = self._blocked.get(job_id)
        return () if job is None else decode(job.resource_request).dependencies

    def _add_pending(self, job: PendingJob) -> None:
        request = decode(job.resource_request).resources
        self.pending.add(QueuedJob(job.id, job.vc, job.username, priority_class_of(job.priority), request))

    def _forget_dependencies(self, job: PendingJob) -> None:
        for dependency in decode(job.resource_request).dependencies:
            dependents = self._dependents.get(dependency.framework)
            if dependents is not None:
                dependents.discard(job.id)
                if not dependents:
                    del self._dependents[dependency.framework]


def check_dependencies(
    dependencies: Iterable[Dependency], states: Mapping[str, str], causes: Mapping[str, str]
) -> DependencyStatus:
    """Status of dependencies. ``states``: of those that exist. ``causes``: why the failed ones failed."""
    waits_for = []
    for dependency in dependencies:
        state = states.get(dependency.framework)
        if state is None:
            # Deleted, so it had finished; jobs that needed it to succeed failed then if it had not.
            continue
        finished = state in ("SUCCEEDED", "FAILED", "STOPPED")
        if finished and dependency.success and state != "SUCCEEDED":
            cause = causes.get(dependency.framework, "").rstrip(".")
            outcome = f"{state}: {cause}" if cause else state
            return DependencyStatus(
                broken=f"The job {dependency.framework} that it depends on ended as {outcome}."
            )
        if not finished:
            waits_for.append(dependency.framework)
    return DependencyStatus(tuple(waits_for))
