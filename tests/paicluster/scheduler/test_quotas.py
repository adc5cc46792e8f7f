"""Quotas of users and groups: a job over a quota waits, says so, and holds up nobody else."""

from __future__ import annotations

import dataclasses

from paicluster.scheduler.plan import Decision, Pending, Snapshot, Start, plan
from paicluster.scheduler.quota_limits import UNLIMITED, HeldResources, QuotaLimit, QuotaUsage, exceeded_quota
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest
from support.scheduler_snapshots import NODE, job, pending, pending_reasons, request, snapshot, started


def limit(owner: str, **amounts: int) -> QuotaLimit:
    return QuotaLimit(owner, HeldResources(*(amounts.get(name, UNLIMITED) for name in HeldResources._fields)))


def with_quotas(
    user_quotas: dict[str, tuple[QuotaLimit, ...]],
    running: dict[str, HeldResources] | None = None,
    **more: object,
) -> Snapshot:
    return dataclasses.replace(snapshot(**more), user_quotas=user_quotas, running=running or {})


def test_user_starts_no_more_than_the_quota() -> None:
    queue = pending(*(job(number, request(2)) for number in range(4)))
    decisions = plan(with_quotas({"ann": (limit("user ann", cpu=5),)}), queue)
    assert started(decisions) == [0, 1]
    assert pending_reasons(decisions)[2].reason == (
        "The job waits for the quota of user ann: it asks for 2 cores; 1 of 5 cores is left."
    )
    assert not pending_reasons(decisions)[2].unschedulable


def test_running_tasks_count() -> None:
    quotas = {"ann": (limit("user ann", tasks=3),)}
    decisions = plan(with_quotas(quotas, {"ann": HeldResources(2, 2, 0, 0)}), pending(job(1, request(1))))
    assert started(decisions) == [1]
    decisions = plan(with_quotas(quotas, {"ann": HeldResources(3, 3, 0, 0)}), pending(job(1, request(1))))
    assert pending_reasons(decisions)[1].reason == (
        "The job waits for the quota of user ann: it asks for 1 task; 0 of 3 tasks are left."
    )


def test_overdrawn_quota_stops_no_job_that_asks_for_nothing_of_it() -> None:
    """The quota was lowered while jobs of two GPUs ran."""
    quotas = {"ann": (limit("user ann", gpu=1),)}
    queue = pending(job(1, request(1)))
    assert started(plan(with_quotas(quotas, {"ann": HeldResources(1, 1, 0, 2)}), queue)) == [1]


def test_job_over_a_quota_holds_up_nobody_of_the_same_shape() -> None:
    shape = request(4)
    queue = pending(job(1, shape, user="ann"), job(2, shape, user="bob"), job(3, shape, user="bob"))
    decisions = plan(with_quotas({"ann": (limit("user ann", cpu=2),)}), queue)
    assert started(decisions) == [2, 3]


def test_smaller_job_of_the_same_user_starts() -> None:
    queue = pending(job(1, request(4)), job(2, request(1)))
    decisions = plan(with_quotas({"ann": (limit("user ann", cpu=2),)}), queue)
    assert started(decisions) == [2]
    assert pending_reasons(decisions)[1].reason == (
        "The job can never start within the quota of user ann: it asks for 4 cores; the quota is 2 cores."
    )


def test_members_of_a_group_share_its_quota() -> None:
    lab = limit("group lab", gpu=2)
    queue = pending(*(job(number, request(1, gpu=1), user=f"user{number}") for number in range(4)))
    decisions = plan(with_quotas({f"user{number}": (lab,) for number in range(3)}), queue)
    assert started(decisions) == [0, 1, 3], "user3 is not a member"
    assert "group lab" in pending_reasons(decisions)[2].reason


def test_array_starts_as_many_tasks_as_the_quota_has() -> None:
    queue = pending(job(1, request(1, tasks=6, gang=False)))
    [start] = plan(with_quotas({"ann": (limit("user ann", tasks=4, memory_mb=300),)}), queue)
    assert isinstance(start, Start)
    assert len(start.placements) == 3


def test_quota_holds_for_opportunistic_and_borrowing_jobs() -> None:
    user_quotas = {"ann": (limit("user ann", cpu=2),)}
    queue = pending(*(job(number, request(1), priority="oppo") for number in range(4)))
    assert started(plan(with_quotas(user_quotas), queue)) == [0, 1]
    queue = pending(*(job(number, request(1), vc="lab") for number in range(4)))
    shares = {"default": NODE, "lab": Resources(1, 8000, 4)}
    decisions = plan(with_quotas(user_quotas, quotas=shares, max_capacities={"lab": NODE}), queue)
    assert started(decisions) == [0, 1]
    assert "quota of user ann" in pending_reasons(decisions)[2].reason


def test_quota_holds_for_delegated_jobs() -> None:
    queue = pending(*(job(number, request(1), vc="slurm") for number in range(3)))
    user_quotas = {"ann": (limit("user ann", tasks=2),)}
    decisions = plan(with_quotas(user_quotas, self_scheduling=frozenset({"slurm"})), queue)
    assert started(decisions) == [0, 1]
    assert "quota of user ann" in pending_reasons(decisions)[2].reason


def test_job_that_waits_for_a_quota_reserves_nothing() -> None:
    queue = pending(job(1, request(8), user="ann"), job(2, request(1), user="bob"))
    decisions = plan(
        with_quotas({"ann": (limit("user ann", cpu=8),)}, {"ann": HeldResources(1, 1, 1, 0)}), queue
    )
    assert started(decisions) == [2]


def delegated(decisions: list[Decision]) -> list[tuple[str, int]]:
    return [(each.role, each.index) for one in decisions if isinstance(one, Start) for each in one.placements]


def test_delegated_array_starts_as_many_tasks_as_the_quota_has() -> None:
    roles = (RoleRequest("big", 2, Resources(4, 1, 0)), RoleRequest("small", 3, Resources(1, 1, 0)))
    array = job(1, ResourceRequest(roles, gang=False), vc="slurm")
    external = {"self_scheduling": frozenset({"slurm"})}
    for limits, expected in (
        ({"cpu": 6}, [("big", 0), ("small", 0), ("small", 1)]),
        ({"cpu": 2}, [("small", 0), ("small", 1)]),
        ({"tasks": 3}, [("big", 0), ("big", 1), ("small", 0)]),
    ):
        decisions = plan(with_quotas({"ann": (limit("user ann", **limits),)}, **external), pending(array))
        assert delegated(decisions) == expected
    gang = job(1, ResourceRequest(roles), vc="slurm")
    whole = plan(with_quotas({"ann": (limit("user ann", cpu=11),)}, **external), pending(gang))
    assert len(delegated(whole)) == 5


def test_opportunistic_jobs_are_delegated_too() -> None:
    queue = pending(job(1, request(1), vc="slurm", priority="oppo"))
    assert started(plan(with_quotas({}, self_scheduling=frozenset({"slurm"})), queue)) == [1]


def test_least_of_several_quotas_holds() -> None:
    own, lab = limit("user ann", cpu=6, tasks=2), limit("group lab", cpu=3)
    array = job(1, request(1, tasks=9, gang=False))
    for limits, count in (((own, lab), 2), ((lab,), 3), ((limit("user ann", cpu=6), lab), 3)):
        [start] = plan(with_quotas({"ann": limits}), pending(array))
        assert isinstance(start, Start)
        assert len(start.placements) == count
    usage = QuotaUsage({"ann": (own, lab), "bob": (lab,)}, {"bob": HeldResources(1, 2, 0, 0)})
    assert usage.remaining("ann") == HeldResources(2, 1, UNLIMITED, UNLIMITED)
    assert usage.remaining("cy") is None
    assert usage.pending_reason("cy", request(9)) == ""
    assert usage.pending_reason("ann", request(2, tasks=1, gang=False)) == (
        "The job waits for the quota of group lab: a task of it asks for 2 cores; 1 of 3 cores is left."
    )
    usage.add("bob", HeldResources(1, 2, 0, 0))
    assert usage.pending_reason("ann", request(1)) == (
        "The job waits for the quota of group lab: it asks for 1 core; 0 of 3 cores are left."
    ), "more than the quota is used: it was lowered"


def test_job_over_a_quota_names_each_unit() -> None:
    for amounts, words in (
        ({"tasks": 1}, "asks for 2 tasks; the quota is 1 task."),
        ({"cpu": 1}, "asks for 2 cores; the quota is 1 core."),
        ({"memory_mb": 100}, "asks for 200 MB of memory; the quota is 100 MB of memory."),
        ({"gpu": 1}, "asks for 2 GPUs; the quota is 1 GPU."),
    ):
        shape = request(1, 100, 1, tasks=2)
        assert exceeded_quota([limit("user ann", **amounts)], shape) == f"quota of user ann: it {words}"
    assert exceeded_quota([limit("user ann", cpu=2, tasks=2)], request(1, tasks=2)) == ""


def test_job_over_a_quota_says_so_once_where_it_might_borrow() -> None:
    shares = {"default": NODE, "lab": Resources(1, 8000, 4)}
    now = with_quotas({"ann": (limit("user ann", cpu=2),)}, quotas=shares, max_capacities={"lab": NODE})
    [waits] = plan(now, pending(job(1, request(4), vc="lab")))
    assert isinstance(waits, Pending)
