"""Index of pending jobs."""

from __future__ import annotations

from paicluster.scheduler.pending_jobs import PendingJobs, QueuedJob
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest

ARRAY = ResourceRequest((RoleRequest("main", 4, Resources(1, 10, 0)),), gang=False, limit=2)


def test_job_that_is_requeued_repeatedly_is_queued_once() -> None:
    pending = PendingJobs()
    first, second = (QueuedJob(number, "default", "ann", "test", ARRAY) for number in (1, 2))
    for job in (first, second, first, first):
        pending.remove(job.job_id)
        pending.add(job)
    assert [job_id for job_id, _ in pending.shapes("default", "test", "ann")] == [1]
    # Once handled, the next is another job, or one job would be started twice in one plan.
    assert pending.next_after("default", "test", "ann", ARRAY, 1) == 2
    assert pending.next_after("default", "test", "ann", ARRAY, 2) is None
    pending.add(QueuedJob(1, "default", "ann", "test", ResourceRequest(ARRAY.roles)))
    pending.remove(1)
    pending.add(first)
    assert [job_id for job_id, _ in pending.shapes("default", "test", "ann")] == [1]
