"""Fair share between users: dominant-resource fairness (DRF) within a virtual cluster's queue."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from paicluster.scheduler.pending_jobs import PendingJobs
from paicluster.scheduler.resource_requests import ResourceRequest, Resources


class Outcome(Enum):
    """Result of trying to start one job; it decides which job is tried next."""

    # It started or was skipped: the user's next job of this shape is tried.
    HANDLED = 1
    # No job of this shape can start now.
    SHAPE_BLOCKED = 2
    # No job of this shape of this user can start now: a quota of the user is used up.
    USER_BLOCKED = 3


# Handles one job: (virtual cluster, user, job id, request).
Handler = Callable[[str, str, int, ResourceRequest], Outcome]


class FairShare:
    """Resources that each user holds, and the order of users: the smallest dominant share first."""

    def __init__(
        self, total: Resources, used_by_user: Mapping[str, Resources], starved: Iterable[tuple[str, str]]
    ):
        self._total = total
        self._used_by_user = dict(used_by_user)
        self._starved = set(starved)

    def add(self, vc: str, user: str, resources: Resources) -> None:
        """Count what a started job holds. The user is no longer starved there."""
        self._used_by_user[user] = self._used_by_user.get(user, Resources()).plus(resources)
        self._starved.discard((vc, user))

    def share_of(self, vc: str, user: str) -> float:
        """The user's dominant share; starved users come first."""
        if (vc, user) in self._starved:
            return -1.0
        return self._used_by_user.get(user, Resources()).dominant_share(self._total)

    def serve(self, pending: PendingJobs, vc: str, priority_class: str, handle: Handler) -> None:
        """Start what can be started of one queue, in fair-share order. A shape that failed is not retried."""
        failed: set[ResourceRequest] = set()
        queue: list[tuple[float, int, str, ResourceRequest]] = []
        for user in pending.users(vc, priority_class):
            share = self.share_of(vc, user)
            for job_id, request in pending.shapes(vc, priority_class, user):
                queue.append((share, job_id, user, request))
        # Tuples never compare by request: no two entries have the same job.
        heap = [(share, job_id, user, number) for number, (share, job_id, user, _) in enumerate(queue)]
        requests = [request for *_, request in queue]
        heapq.heapify(heap)
        while heap:
            share, job_id, user, number = heapq.heappop(heap)
            current = self.share_of(vc, user)
            if current > share:  # another job of this user started meanwhile: requeue by the new share
                heapq.heappush(heap, (current, job_id, user, number))
                continue
            request = requests[number]
            if request in failed:
                continue
            outcome = handle(vc, user, job_id, request)
            if outcome is not Outcome.HANDLED:
                if outcome is Outcome.SHAPE_BLOCKED:
                    failed.add(request)
                continue
            following = pending.next_after(vc, priority_class, user, request, job_id)
            if following is not None:
                heapq.heappush(heap, (self.share_of(vc, user), following, user, number))
