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


SHAPES = [ResourceRequest((RoleRequest("main", 1, Resources(cpu, 10, 0)),)) for cpu in (1, 2)]


def queued(
    job_id: int, shape: int = 0, *, vc: str = "lab", user: str = "ann", priority: str = "test"
) -> QueuedJob:
    return QueuedJob(job_id, vc, user, priority, SHAPES[shape])


def test_oldest_job_of_each_shape_is_next() -> None:
    pending = PendingJobs()
    for job in (queued(5), queued(2, 1), queued(3), queued(9, 1)):
        pending.add(job)
    assert list(pending.shapes("lab", "test", "ann")) == [(3, SHAPES[0]), (2, SHAPES[1])]
    assert pending.next_after("lab", "test", "ann", SHAPES[0], 5) is None, "it is not the first"
    assert pending.next_after("lab", "test", "ann", SHAPES[0], 3) == 5
    assert pending.next_after("lab", "test", "ann", SHAPES[1], 2) == 9
    assert pending.next_after("lab", "test", "bob", SHAPES[0], 5) is None


def test_removed_and_changed_jobs_are_skipped() -> None:
    pending = PendingJobs()
    for job_id in range(1, 7):
        pending.add(queued(job_id))
    pending.remove(1)
    pending.remove(77)
    pending.add(queued(2, 1))
    pending.add(queued(3, vc="other"))
    pending.add(queued(4, user="bob"))
    pending.add(queued(5, priority="prod"))
    assert (1 in pending, 2 in pending, len(pending)) == (False, True, 5)
    assert list(pending.shapes("lab", "test", "ann")) == [(6, SHAPES[0]), (2, SHAPES[1])]
    for job_id in (1, 2, 3, 4, 5):
        pending.add(queued(job_id))
    handled = [next(iter(pending.shapes("lab", "test", "ann")))[0]]
    while (following := pending.next_after("lab", "test", "ann", SHAPES[0], handled[-1])) is not None:
        handled.append(following)
    assert handled == [1, 2, 3, 4, 5, 6], "each once"


def test_next_job_is_not_one_that_was_removed() -> None:
    pending = PendingJobs()
    for job_id in (1, 2, 3):
        pending.add(queued(job_id))
    pending.remove(2)
    assert pending.next_after("lab", "test", "ann", SHAPES[0], 1) == 3
    pending.remove(3)
    pending.add(queued(1))
    assert pending.next_after("lab", "test", "ann", SHAPES[0], 3) is None


def test_handled_job_can_be_queued_again() -> None:
    pending = PendingJobs()
    pending.add(queued(1))
    assert pending.next_after("lab", "test", "ann", SHAPES[0], 1) is None
    pending.remove(1)
    pending.add(queued(1))
    assert list(pending.shapes("lab", "test", "ann")) == [(1, SHAPES[0])]


def test_equal_shapes_are_one_object() -> None:
    pending = PendingJobs()
    pending.add(queued(1))
    pending.add(QueuedJob(2, "lab", "ann", "test", ResourceRequest(SHAPES[0].roles)))
    second = pending.get(2)
    assert second is not None and second.request is SHAPES[0]
    assert pending.get(3) is None
    assert pending.next_after("lab", "test", "ann", SHAPES[0], 1) == 2


def test_queues_without_jobs_disappear() -> None:
    pending = PendingJobs()
    for job in (
        queued(1, user="bob"),
        queued(2),
        queued(3, vc="b"),
        queued(4, vc="a"),
        queued(5, priority="oppo"),
    ):
        pending.add(job)
    assert pending.virtual_clusters("test") == ["a", "b", "lab"]
    assert pending.virtual_clusters("oppo") == ["lab"]
    assert pending.users("lab", "test") == ["bob", "ann"]
    assert pending.users("nowhere", "test") == []
    assert pending.waiting_users() == {("lab", "bob"), ("lab", "ann"), ("a", "ann"), ("b", "ann")}
    pending.remove(1)
    assert list(pending.shapes("lab", "test", "bob")) == []
    assert pending.users("lab", "test") == ["ann"]
    pending.remove(2)
    assert list(pending.shapes("lab", "test", "ann")) == []
    assert pending.virtual_clusters("test") == ["a", "b"]
    assert list(pending.shapes("nowhere", "test", "ann")) == []


def test_nothing_is_left_after_clear() -> None:
    pending = PendingJobs()
    pending.add(queued(1))
    pending.clear()
    assert (len(pending), pending.virtual_clusters("test"), pending.waiting_users()) == (0, [], set())
    pending.add(queued(1))
    assert list(pending.shapes("lab", "test", "ann")) == [(1, SHAPES[0])]
