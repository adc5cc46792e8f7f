"""Preemption: jobs on their quota take the place of opportunistic ones, and of as few as needed."""

from __future__ import annotations

from paicluster.scheduler.placement import NodeCapacity
from paicluster.scheduler.plan import Preempt, Snapshot, plan
from paicluster.scheduler.preemption import PreemptibleJob
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest
from support.scheduler_snapshots import NODE, job, pending, pending_reasons, request, snapshot, started

FULL = Resources(0, 8000, 4)
HALF = Resources(4, 4000, 2)


def holding(job_id: int, cpu: int, *, node: str = "n", preempting: bool = False) -> PreemptibleJob:
    return PreemptibleJob(job_id, ((node, Resources(cpu, 0, 0), ()),), preempting)


def preempted(now: Snapshot, *jobs: object) -> list[tuple[int, int]]:
    decisions = plan(now, pending(*jobs))  # type: ignore[arg-type]
    return [(one.job_id, one.preemptor) for one in decisions if isinstance(one, Preempt)]


def test_second_job_does_not_count_on_what_is_reserved_for_the_first() -> None:
    now = snapshot(FULL, preemptible=[holding(9, 2), holding(8, 2), holding(7, 2)])
    both = preempted(now, job(1, request(2)), job(2, request(2, 200), user="bob"))
    assert both == [(9, 1), (8, 2)]


def test_second_job_takes_what_the_first_leaves_of_a_preempted_one() -> None:
    now = snapshot(FULL, preemptible=[holding(9, 4), holding(8, 4)])
    assert preempted(now, job(1, request(2)), job(2, request(2, 200), user="bob")) == [(9, 1)]


def test_job_that_is_already_being_preempted_is_waited_for() -> None:
    now = snapshot(FULL, preemptible=[holding(9, 2, preempting=True), holding(8, 2)])
    assert preempted(now, job(1, request(2))) == []
    assert preempted(now, job(1, request(4))) == [(8, 1)]


def test_array_preempts_for_one_task() -> None:
    now = snapshot(FULL, preemptible=[holding(9, 2), holding(8, 2), holding(7, 2)])
    array = request(2, tasks=3, gang=False)
    assert preempted(now, job(1, array)) == [(9, 1)]
    # One task is reserved, not three.
    both = preempted(now, job(1, array), job(2, request(2, 200), user="bob"))
    assert both == [(9, 1), (8, 2)]


def test_array_of_two_roles_preempts_for_the_smaller_task() -> None:
    roles = (RoleRequest("big", 1, Resources(6, 1, 0)), RoleRequest("small", 1, Resources(1, 1, 0)))
    now = snapshot(FULL, preemptible=[holding(9, 1), holding(8, 1), holding(7, 1)])
    first, second = job(1, ResourceRequest(roles, gang=False)), job(2, request(1, 200), user="bob")
    assert preempted(now, first, second) == [(9, 1), (8, 2)]


def test_every_victim_that_does_not_help_is_spared() -> None:
    nodes = [NodeCapacity(name, NODE, FULL, (0, 1, 2, 3)) for name in "ab"]
    victims = [
        holding(9, 3, node="a"),
        holding(8, 3, node="b"),
        holding(7, 3, node="a"),
        holding(6, 8, node="b"),
    ]
    now = snapshot(nodes=nodes, quotas={"default": NODE}, preemptible=victims)
    assert preempted(now, job(1, request(6))) == [(9, 1), (7, 1)]


def test_quota_that_is_used_up_preempts_nothing() -> None:
    now = snapshot(FULL, used={"default": NODE}, preemptible=[holding(9, 8)])
    assert preempted(now, job(1, request(2))) == []
    assert preempted(snapshot(FULL, preemptible=[holding(9, 8)]), job(1, request(2))) == [(9, 1)]


def test_reserved_quota_of_a_virtual_cluster_is_its_own() -> None:
    now = snapshot(
        FULL,
        quotas={"default": HALF, "lab": HALF},
        preemptible=[holding(9, 4), holding(8, 4), holding(7, 4)],
    )
    jobs = (job(1, request(4), vc="default"), job(2, request(4), vc="lab"), job(3, request(4, 200), vc="lab"))
    assert preempted(now, *jobs) == [(9, 1), (8, 2)]


def test_opportunistic_jobs_do_not_preempt() -> None:
    now = snapshot(FULL, preemptible=[holding(9, 8)])
    decisions = plan(now, pending(job(1, request(2), priority="oppo")))
    assert [type(one).__name__ for one in decisions] == ["Pending"]
    assert pending_reasons(decisions)[1].reason == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "A task asks for 2 cores; no node has more than 0 cores free."
    )


def test_opportunistic_jobs_do_not_count_against_the_quota() -> None:
    queue = pending(job(1, request(4), priority="oppo"), job(2, request(4), priority="oppo", user="bob"))
    now = snapshot(quotas={"default": HALF}, used={"default": HALF})
    assert started(plan(now, queue)) == [1, 2]


def test_opportunistic_job_does_not_delay_a_job_on_its_quota_or_a_borrower() -> None:
    free = Resources(3, 8000, 4)
    waiting = job(2, request(2), priority="oppo")
    assert started(plan(snapshot(free), pending(job(1, request(4)), waiting))) == []
    used = {"lab": HALF}
    capacities = {"quotas": {"default": HALF, "lab": HALF}, "max_capacities": {"lab": NODE}, "used": used}
    assert started(plan(snapshot(free, **capacities), pending(job(1, request(4), vc="lab"), waiting))) == []
    reasons = pending_reasons(plan(snapshot(free), pending(job(1, request(4)), waiting)))
    assert reasons[2].reason == "An earlier job is waiting for the same resources."
