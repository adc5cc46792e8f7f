"""Borrowing: idle resources go to virtual clusters whose maximum capacity is above their quota."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from paicluster.scheduler.pending_jobs import QueuedJob
from paicluster.scheduler.plan import Pending, Preempt, Start, plan
from paicluster.scheduler.resource_requests import ResourceRequest, Resources
from support.scheduler_snapshots import NODE, job, node, pending, pending_reasons, request, snapshot, started

HALF = Resources(4, 4000, 2)
QUOTAS = {"default": HALF, "lab": HALF}
MAX_CAPACITIES = {"lab": NODE}


def test_no_borrowing_without_a_maximum_capacity() -> None:
    queue = pending(*(job(number, request(2), vc="lab") for number in range(4)))
    assert started(plan(snapshot(quotas=QUOTAS), queue)) == [0, 1]


def test_borrowing_up_to_the_maximum_capacity() -> None:
    queue = pending(*(job(number, request(2), vc="lab") for number in range(4)))
    decisions = plan(snapshot(quotas=QUOTAS, max_capacities={"lab": Resources(6, 8000, 4)}), queue)
    assert started(decisions) == [0, 1, 2]
    assert list(pending_reasons(decisions)) == [3], "a job that borrowed is not pending"


def test_quota_comes_before_borrowing_regardless_of_priority() -> None:
    queue = pending(
        job(1, request(4), vc="lab", priority="crit"),
        job(2, request(4), vc="lab", priority="crit"),
        job(3, request(4), vc="default", priority="test"),
    )
    assert started(plan(snapshot(quotas=QUOTAS, max_capacities=MAX_CAPACITIES), queue)) == [1, 3]


def test_borrowers_do_not_delay_jobs_within_their_quota() -> None:
    # Four cores are free, and the job in default requests eight within its quota: it must not be starved.
    shares = {"default": NODE, "lab": Resources(0, 8000, 4)}
    queue = pending(job(1, request(8), vc="default"), job(2, request(2), vc="lab"))
    decisions = plan(snapshot(Resources(4, 8000, 4), quotas=shares, max_capacities=MAX_CAPACITIES), queue)
    assert started(decisions) == []
    # A job that lacks quota, not free resources, is not delayed.
    used = {"default": HALF}
    queue = pending(job(1, request(4), vc="default"), *(job(n, request(2), vc="lab") for n in (2, 3, 4)))
    decisions = plan(
        snapshot(Resources(8, 8000, 4), quotas=QUOTAS, used=used, max_capacities=MAX_CAPACITIES), queue
    )
    assert started(decisions) == [2, 3, 4]


def test_job_larger_than_the_quota_borrows_and_does_not_block_the_quota() -> None:
    large = request(6)
    queue = pending(job(1, large, vc="lab"), job(2, request(2), vc="lab"))
    decisions = plan(snapshot(Resources(4, 8000, 4), quotas=QUOTAS, max_capacities=MAX_CAPACITIES), queue)
    assert started(decisions) == [2]
    assert not pending_reasons(decisions)[1].unschedulable
    assert started(
        plan(snapshot(quotas=QUOTAS, max_capacities=MAX_CAPACITIES), pending(job(1, large, vc="lab")))
    ) == [1]
    unschedulable = plan(
        snapshot(quotas=QUOTAS, max_capacities={"lab": Resources(5, 8000, 4)}),
        pending(job(1, large, vc="lab")),
    )
    assert pending_reasons(unschedulable)[1].unschedulable


def test_later_borrower_does_not_pass_an_earlier_one() -> None:
    used = {"lab": HALF}
    queue = pending(job(1, request(4), vc="lab"), job(2, request(2), vc="lab", user="bob"))
    assert (
        started(
            plan(
                snapshot(Resources(3, 8000, 4), quotas=QUOTAS, used=used, max_capacities=MAX_CAPACITIES),
                queue,
            )
        )
        == []
    )


def test_borrowers_do_not_preempt_but_come_before_opportunistic_jobs() -> None:
    used = {"lab": HALF}
    queue = pending(job(1, request(4), vc="lab"), job(2, request(2), priority="oppo"))
    decisions = plan(
        snapshot(Resources(4, 8000, 4), quotas=QUOTAS, used=used, max_capacities=MAX_CAPACITIES), queue
    )
    assert started(decisions) == [1]
    assert not [one for one in decisions if isinstance(one, Preempt)]


def test_borrower_that_must_wait_says_why_once() -> None:
    jobs = [job(number, request(2), vc="lab") for number in range(4)]
    decisions = plan(
        snapshot(
            Resources(5, 8000, 4),
            quotas=QUOTAS,
            used={"lab": Resources(2, 0, 0)},
            max_capacities=MAX_CAPACITIES,
        ),
        pending(*jobs),
    )
    assert started(decisions) == [0, 1]
    assert [one.job_id for one in decisions if isinstance(one, Pending)] == [2]
    assert pending_reasons(decisions)[2].reason == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "A task asks for 2 cores; no node has more than 1 core free."
    )
    most = {"lab": Resources(5, 8000, 4)}
    decisions = plan(
        snapshot(quotas=QUOTAS, used={"lab": Resources(2, 0, 0)}, max_capacities=most), pending(*jobs)
    )
    assert started(decisions) == [0]
    assert pending_reasons(decisions)[1].reason.endswith(
        "has used up its quota. The job asks for 2 cores; its quota has 0 cores left."
    )


def test_borrower_after_one_of_the_same_shape_says_why() -> None:
    large = Resources(16, 16000, 0)
    now = snapshot(nodes=[node(large, total=large)], quotas=QUOTAS, max_capacities=MAX_CAPACITIES)
    decisions = plan(now, pending(job(1, request(6), vc="lab"), job(2, request(6), vc="lab")))
    assert started(decisions) == [1]
    assert pending_reasons(decisions)[2].reason.startswith("The job requests more than the quota of lab: ")


def test_jobs_of_an_external_scheduler_do_not_borrow() -> None:
    queue = pending(*(job(number, request(2), vc="lab") for number in range(2)))
    external = snapshot(quotas=QUOTAS, max_capacities=MAX_CAPACITIES, self_scheduling=frozenset({"lab"}))
    assert started(plan(external, queue)) == [0, 1]


def test_array_whose_limit_is_reached_does_not_borrow() -> None:
    array = request(2, tasks=3, gang=False)
    queue = pending(job(1, array, vc="lab"), job(2, array, vc="lab"))
    now = snapshot(
        quotas=QUOTAS, used={"lab": HALF}, max_capacities=MAX_CAPACITIES, partial={1: (((2,),), 0)}
    )
    assert started(plan(now, queue)) == [2]


def test_larger_maximum_of_one_resource_is_enough_to_borrow() -> None:
    most = {"lab": Resources(5, 4000, 2)}
    queue = pending(job(1, request(1), vc="lab"))
    assert started(plan(snapshot(quotas=QUOTAS, used={"lab": HALF}, max_capacities=most), queue)) == []
    cores = {"lab": Resources(4, 3000, 2)}
    assert started(plan(snapshot(quotas=QUOTAS, used=cores, max_capacities=most), queue)) == [1]


REQUESTS = st.builds(
    request,
    st.integers(1, 5),
    st.integers(1, 3000),
    st.integers(0, 2),
    tasks=st.integers(1, 3),
    gang=st.booleans(),
)
JOBS = st.lists(
    st.tuples(REQUESTS, st.sampled_from(["default", "lab"]), st.sampled_from(["test", "prod", "oppo"])),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(JOBS, st.integers(0, 8), st.integers(0, 4))
def test_capacities_hold_for_any_pending_jobs(
    requests: list[tuple[ResourceRequest, str, str]], max_cpu: int, borrowed_cpu: int
) -> None:
    max_capacity = Resources(max(4, max_cpu), 8000, 4)
    used = {"lab": Resources(borrowed_cpu, 0, 0)}
    jobs: dict[int, QueuedJob] = {
        number: job(number, shape, vc=vc, priority=priority)
        for number, (shape, vc, priority) in enumerate(requests)
    }
    free = NODE.minus(Resources(borrowed_cpu, 0, 0))
    decisions = plan(
        snapshot(free, quotas=QUOTAS, used=used, max_capacities={"lab": max_capacity}),
        pending(*jobs.values()),
    )
    taken = {"default": Resources(), "lab": used["lab"], "oppo": Resources()}
    for decision in decisions:
        if isinstance(decision, Start):
            queued = jobs[decision.job_id]
            key = "oppo" if queued.priority_class == "oppo" else queued.vc
            taken[key] = taken[key].plus(queued.request.roles[0].each, len(decision.placements))
    assert taken["lab"].fits(max_capacity)
    assert taken["default"].fits(HALF)
    assert taken["default"].plus(taken["lab"]).plus(taken["oppo"]).fits(NODE)
    assert len(started(decisions)) == len(set(started(decisions)))
    assert not set(started(decisions)) & set(pending_reasons(decisions))
