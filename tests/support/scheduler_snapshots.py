"""Scheduler snapshots for tests, and views of the decisions."""

from __future__ import annotations

from paicluster.scheduler.pending_jobs import PendingJobs, QueuedJob
from paicluster.scheduler.placement import NodeCapacity
from paicluster.scheduler.plan import Decision, Pending, Snapshot, Start
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest

NODE = Resources(8, 8000, 4)


def request(
    cpu: int = 1, memory_mb: int = 100, gpu: int = 0, *, tasks: int = 1, gang: bool = True
) -> ResourceRequest:
    return ResourceRequest((RoleRequest("main", tasks, Resources(cpu, memory_mb, gpu)),), gang)


def node(
    free: Resources = NODE, gpus: tuple[int, ...] | None = None, total: Resources = NODE
) -> NodeCapacity:
    return NodeCapacity("n", total, free, tuple(range(free.gpu)) if gpus is None else gpus)


def pending(*jobs: QueuedJob) -> PendingJobs:
    queue = PendingJobs()
    for job in jobs:
        queue.add(job)
    return queue


def job(
    job_id: int, shape: ResourceRequest, *, vc: str = "default", user: str = "ann", priority: str = "test"
) -> QueuedJob:
    return QueuedJob(job_id, vc, user, priority, shape)


def snapshot(free: Resources = NODE, **more: object) -> Snapshot:
    fields: dict[str, object] = {"nodes": [node(free)], "quotas": {"default": NODE}, "used": {}} | more
    return Snapshot(**fields)  # type: ignore[arg-type]


def started(decisions: list[Decision]) -> list[int]:
    return [d.job_id for d in decisions if isinstance(d, Start)]


def pending_reasons(decisions: list[Decision]) -> dict[int, Pending]:
    return {d.job_id: d for d in decisions if isinstance(d, Pending)}
