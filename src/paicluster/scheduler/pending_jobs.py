"""The jobs that wait, arranged so that a scheduling pass costs by kinds of jobs and not by jobs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

from paicluster.scheduler.resource_requests import ResourceRequest

LEVELS = ("crit", "prod", "test", "oppo")
DEFAULT_LEVEL = "test"


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """``need`` is what it still waits for. Smaller ids came first."""

    job_id: int
    vc: str
    user: str
    priority_class: str
    need: ResourceRequest


class PendingJobs:
    """Waiting jobs by virtual cluster, priority, user and shape; within those, first come first."""

    def __init__(self) -> None:
        self._jobs: dict[int, QueuedJob] = {}
        self._shapes: dict[ResourceRequest, ResourceRequest] = {}
        # Heaps of ids; an id that is no longer in _jobs, or there with another place, is skipped. None is in
        # a heap twice: it would be started twice.
        self._heaps: dict[tuple[str, str], dict[str, dict[ResourceRequest, list[int]]]] = {}
        self._in_heap: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._jobs

    def get(self, job_id: int) -> QueuedJob | None:
        return self._jobs.get(job_id)

    def add(self, job: QueuedJob) -> None:
        # Equal shapes are one object here, so that comparing them costs nothing.
        shape = self._shapes.setdefault(job.need, job.need)
        if shape is not job.need:
            job = replace(job, need=shape)
        if self._jobs.get(job.job_id) == job:
            return
        self._jobs[job.job_id] = job
        users = self._heaps.setdefault((job.vc, job.priority_class), {})
        heap = users.setdefault(job.user, {}).setdefault(job.need, [])
        if self._in_heap.get(job.job_id) is not heap:
            self._in_heap[job.job_id] = heap
            heapq.heappush(heap, job.job_id)

    def remove(self, job_id: int) -> None:
        self._jobs.pop(job_id, None)

    def clear(self) -> None:
        self._jobs.clear()
        self._shapes.clear()
        self._heaps.clear()
        self._in_heap.clear()

    def clusters(self, level: str) -> list[str]:
        """The virtual clusters in which a job of this level may wait, in a fixed order."""
        return sorted(vc for vc, at in self._heaps if at == level)

    def users(self, vc: str, level: str) -> list[str]:
        return list(self._heaps.get((vc, level), ()))

    def waiting_users(self) -> set[tuple[str, str]]:
        """Which users may wait, and in which virtual clusters."""
        return {(vc, user) for (vc, _), users in self._heaps.items() for user in users}

    def shapes(self, vc: str, level: str, user: str) -> Iterator[tuple[int, ResourceRequest]]:
        """For each shape this user waits with, the oldest job of it."""
        shapes = self._heaps.get((vc, level), {}).get(user, {})
        for need in list(shapes):
            heap = shapes[need]
            while heap and not self._is_at(heap[0], vc, level, user, need):
                self._pop(heap)
            if heap:
                yield heap[0], need
            else:
                del shapes[need]
        if not shapes:
            users = self._heaps.get((vc, level), {})
            users.pop(user, None)
            if not users:
                self._heaps.pop((vc, level), None)

    def after(self, vc: str, level: str, user: str, need: ResourceRequest, job_id: int) -> int | None:
        """The next job of that place when this one has been dealt with in the current pass."""
        heap = self._heaps.get((vc, level), {}).get(user, {}).get(need)
        if not heap or heap[0] != job_id:
            return None
        self._pop(heap)
        while heap and not self._is_at(heap[0], vc, level, user, need):
            self._pop(heap)
        return heap[0] if heap else None

    def _pop(self, heap: list[int]) -> None:
        job_id = heapq.heappop(heap)
        if self._in_heap.get(job_id) is heap:
            del self._in_heap[job_id]

    def _is_at(self, job_id: int, vc: str, level: str, user: str, need: ResourceRequest) -> bool:
        job = self._jobs.get(job_id)
        return (
            job is not None
            and job.vc == vc
            and job.priority_class == level
            and job.user == user
            and job.need is need
        )
