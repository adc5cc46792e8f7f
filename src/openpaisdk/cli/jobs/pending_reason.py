"""Pending reason of a job, as the cluster reports it."""

from __future__ import annotations

import time

from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobStatus, JobSummary

JUST_SUBMITTED = "It was submitted a moment ago."
QUEUED = "Earlier jobs are waiting for the same resources."

_RECENT_MS = 3000


def is_recent(submitted_ms: int | None) -> bool:
    """Whether the scheduler may not have seen the job yet. Uses the local clock: good enough for a notice."""
    return submitted_ms is not None and time.time() * 1000 - submitted_ms < _RECENT_MS


def pending_reason(cluster: ClusterClient, job: JobStatus | JobSummary) -> str:
    """The latest pending reason of a job; empty if the cluster has no events."""
    try:
        events = cluster.events(job.name, job.user)
    except PaiError:  # API version 1 has no events
        return ""
    fallback = JUST_SUBMITTED if is_recent(job.submitted_ms) else QUEUED
    return next((e.message for e in events if e.is_pending and e.message), fallback)


def unmet_requests(cluster: ClusterClient, job: JobStatus) -> list[str]:
    """What a job asked for and did not get, such as its image; empty if the cluster has no events."""
    from openpaisdk.jobs.job_notices import UNMET_REQUESTS

    try:
        events = cluster.events(job.name, job.user)
    except PaiError:  # API version 1 has no events
        return []
    return list(dict.fromkeys(event.message for event in events if event.reason in UNMET_REQUESTS))


class PendingQueue:
    """The pending jobs of a virtual cluster: their number, and the first one with its reason."""

    __slots__ = ("count", "first", "reason")

    def __init__(self, count: int, first: str, reason: str):
        self.count = count
        self.first = first
        self.reason = reason

    def __str__(self) -> str:
        jobs = "1 pending job" if self.count == 1 else f"{self.count} pending jobs"
        return f"{jobs}; the first is {self.first}" + (f": {self.reason}" if self.reason else ".")


def pending_queues(cluster: ClusterClient, virtual_clusters: list[str]) -> dict[str, PendingQueue]:
    """The non-empty queues of these virtual clusters, by name."""
    queues = {}
    try:
        if not cluster.count_jobs(state="WAITING"):
            return {}
        for vc in virtual_clusters:
            count = cluster.count_jobs(state="WAITING", virtual_cluster=vc)
            first = cluster.jobs(state="WAITING", virtual_cluster=vc, limit=1, order="submissionTime,ASC")
            for job in first:
                reason = pending_reason(cluster, job)
                queues[vc] = PendingQueue(max(count, 1), f"{job.user}~{job.name}", reason)
    except PaiError:  # the free resources are the result; the queues are optional
        pass
    return queues
