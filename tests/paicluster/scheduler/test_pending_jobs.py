"""The jobs that wait, as a scheduling pass finds them."""

from __future__ import annotations

from paicluster.scheduler.pending_jobs import PendingJobs, QueuedJob
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest

ARRAY = ResourceRequest((RoleRequest("main", 4, Resources(1, 10, 0)),), gang=False, limit=2)


def test_a_job_that_comes_back_again_and_again_is_in_line_once() -> None:
    waiting = PendingJobs()
    first, second = (QueuedJob(number, "default", "ann", "test", ARRAY) for number in (1, 2))
    for job in (first, second, first, first):
        waiting.remove(job.job_id)
        waiting.add(job)
    assert [job_id for job_id, _ in waiting.shapes("default", "test", "ann")] == [1]
    # Dealt with: whoever comes next is another job, or it would be started twice in one pass.
    assert waiting.after("default", "test", "ann", ARRAY, 1) == 2
    assert waiting.after("default", "test", "ann", ARRAY, 2) is None
    waiting.add(QueuedJob(1, "default", "ann", "test", ResourceRequest(ARRAY.roles)))
    waiting.remove(1)
    waiting.add(first)
    assert [job_id for job_id, _ in waiting.shapes("default", "test", "ann")] == [1]
