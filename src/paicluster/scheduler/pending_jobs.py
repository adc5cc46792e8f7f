"""Index of pending jobs, so that planning costs by distinct resource requests and not by jobs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

from paicluster.scheduler.resource_requests import ResourceRequest

PRIORITY_CLASSES = ("crit", "prod", "test", "oppo")
DEFAULT_PRIORITY_CLASS = "test"


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A pending job. ``request``: what is still to be scheduled. Smaller ids were submitted first."""

    job_id: int
    vc: str
    user: str
    priority_class: str
    request: ResourceRequest


class PendingJobs:
    """Pending jobs by virtual cluster, priority class, user and shape (resource request), oldest first."""

    def __init__(self) -> None:
        self._jobs: dict[int, QueuedJob] = {}
        self._shapes: dict[ResourceRequest, ResourceRequest] = {}
        # Heaps of ids. An id that is no longer in _jobs, or is there under another key, is skipped. No id is
        # in a heap twice: the job would be started twice.
        self._heaps: dict[tuple[str, str], dict[str, dict[ResourceRequest, list[int]]]] = {}
        self._in_heap: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._jobs

    def get(self, job_id: int) -> QueuedJob | None:
        return self._jobs.get(job_id)

    def add(self, job: QueuedJob) -> None:
        # Equal shapes are one object here, so that they compare by identity.
        shape = self._shapes.setdefault(job.request, job.request)
        if shape is not job.request:
            job = replace(job, request=shape)
        if self._jobs.get(job.job_id) == job:
            return
        self._jobs[job.job_id] = job
        users = self._heaps.setdefault((job.vc, job.priority_class), {})
        heap = users.setdefault(job.user, {}).setdefault(job.request, [])
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

    def virtual_clusters(self, priority_class: str) -> list[str]:
        """Virtual clusters that may have pending jobs of this class, in a fixed order."""
        return sorted(vc for vc, key in self._heaps if key == priority_class)

    def users(self, vc: str, priority_class: str) -> list[str]:
        return list(self._heaps.get((vc, priority_class), ()))

    def waiting_users(self) -> set[tuple[str, str]]:
        """(virtual cluster, user) pairs that may have pending jobs."""
        return {(vc, user) for (vc, _), users in self._heaps.items() for user in users}

    def shapes(self, vc: str, priority_class: str, user: str) -> Iterator[tuple[int, ResourceRequest]]:
        """The oldest pending job of each shape, of one user."""
        shapes = self._heaps.get((vc, priority_class), {}).get(user, {})
        for request in list(shapes):
            heap = shapes[request]
            while heap and not self._is_at(heap[0], vc, priority_class, user, request):
                self._pop(heap)
            if heap:
                yield heap[0], request
            else:
                del shapes[request]
        if not shapes:
            users = self._heaps.get((vc, priority_class), {})
            users.pop(user, None)
            if not users:
                self._heaps.pop((vc, priority_class), None)

    def next_after(
        self, vc: str, priority_class: str, user: str, request: ResourceRequest, job_id: int
    ) -> int | None:
        """The next job with the same shape and user, once this one has been handled in the current plan."""
        heap = self._heaps.get((vc, priority_class), {}).get(user, {}).get(request)
        if not heap or heap[0] != job_id:
            return None
        self._pop(heap)
        while heap and not self._is_at(heap[0], vc, priority_class, user, request):
            self._pop(heap)
        return heap[0] if heap else None

    def _pop(self, heap: list[int]) -> None:
        job_id = heapq.heappop(heap)
        if self._in_heap.get(job_id) is heap:
            del self._in_heap[job_id]

    def _is_at(self, job_id: int, vc: str, priority_class: str, user: str, request: ResourceRequest) -> bool:
        job = self._jobs.get(job_id)
        return (
            job is not None
            and job.vc == vc
            and job.priority_class == priority_class
            and job.user == user
            and job.request is request
        )
