"""Quotas of users and groups: a job over a quota waits, says so, and holds up nobody else."""

from __future__ import annotations

import dataclasses

from paicluster.scheduler.plan import Snapshot, Start, plan
from paicluster.scheduler.quotas import UNLIMITED, QuotaLimit, Running
from paicluster.scheduler.resource_requests import Resources
from support.scheduler_snapshots import NODE, job, pending, pending_reasons, request, snapshot, started


def limit(owner: str, **amounts: int) -> QuotaLimit:
    return QuotaLimit(owner, Running(*(amounts.get(name, UNLIMITED) for name in Running._fields)))


def with_quotas(
    user_quotas: dict[str, tuple[QuotaLimit, ...]],
    running: dict[str, Running] | None = None,
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
    decisions = plan(with_quotas(quotas, {"ann": Running(2, 2, 0, 0)}), pending(job(1, request(1))))
    assert started(decisions) == [1]
    decisions = plan(with_quotas(quotas, {"ann": Running(3, 3, 0, 0)}), pending(job(1, request(1))))
    assert pending_reasons(decisions)[1].reason == (
        "The job waits for the quota of user ann: it asks for 1 task; 0 of 3 tasks are left."
    )


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
    decisions = plan(with_quotas({"ann": (limit("user ann", cpu=8),)}, {"ann": Running(1, 1, 1, 0)}), queue)
    assert started(decisions) == [2]
