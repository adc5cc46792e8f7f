"""What a virtual cluster leaves idle is lent to those that may have more than their share."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from paicluster.scheduler.pending_jobs import QueuedJob
from paicluster.scheduler.plan import Preempt, Start, plan
from paicluster.scheduler.resource_requests import ResourceRequest, Resources
from support.scheduler_snapshots import NODE, job, need, snapshot, started, waiting, waits

HALF = Resources(4, 4000, 2)
SHARES = {"default": HALF, "lab": HALF}
LIMITS = {"lab": NODE}


def test_without_a_limit_above_it_a_share_is_all_one_gets() -> None:
    queue = waiting(*(job(number, need(2), vc="lab") for number in range(4)))
    assert started(plan(snapshot(shares=SHARES), queue)) == [0, 1]


def test_what_is_idle_is_lent_up_to_the_limit() -> None:
    queue = waiting(*(job(number, need(2), vc="lab") for number in range(4)))
    decisions = plan(snapshot(shares=SHARES, limits={"lab": Resources(6, 8000, 4)}), queue)
    assert started(decisions) == [0, 1, 2]
    assert list(waits(decisions)) == [3], "and who got something does not wait"


def test_those_with_a_right_come_first_whatever_their_priority_and_age() -> None:
    queue = waiting(
        job(1, need(4), vc="lab", level="crit"),
        job(2, need(4), vc="lab", level="crit"),
        job(3, need(4), vc="default", level="test"),
    )
    assert started(plan(snapshot(shares=SHARES, limits=LIMITS), queue)) == [1, 3]


def test_nothing_is_lent_that_somebody_with_a_right_waits_for() -> None:
    # Four cores are free and the job in default needs eight of its own: it must get them some day.
    shares = {"default": NODE, "lab": Resources(0, 8000, 4)}
    queue = waiting(job(1, need(8), vc="default"), job(2, need(2), vc="lab"))
    decisions = plan(snapshot(Resources(4, 8000, 4), shares=shares, limits=LIMITS), queue)
    assert started(decisions) == []
    # One that lacks share, and not room, loses nothing by it.
    used = {"default": HALF}
    queue = waiting(job(1, need(4), vc="default"), *(job(n, need(2), vc="lab") for n in (2, 3, 4)))
    decisions = plan(snapshot(Resources(8, 8000, 4), shares=SHARES, used=used, limits=LIMITS), queue)
    assert started(decisions) == [2, 3, 4]


def test_a_job_larger_than_the_share_starts_when_the_rest_is_idle_and_keeps_nobody_from_the_share() -> None:
    large = need(6)
    queue = waiting(job(1, large, vc="lab"), job(2, need(2), vc="lab"))
    decisions = plan(snapshot(Resources(4, 8000, 4), shares=SHARES, limits=LIMITS), queue)
    assert started(decisions) == [2]
    assert not waits(decisions)[1].never
    assert started(plan(snapshot(shares=SHARES, limits=LIMITS), waiting(job(1, large, vc="lab")))) == [1]
    never = plan(
        snapshot(shares=SHARES, limits={"lab": Resources(5, 8000, 4)}), waiting(job(1, large, vc="lab"))
    )
    assert waits(never)[1].never


def test_the_first_to_borrow_holds_its_place() -> None:
    used = {"lab": HALF}
    queue = waiting(job(1, need(4), vc="lab"), job(2, need(2), vc="lab", user="bob"))
    assert (
        started(plan(snapshot(Resources(3, 8000, 4), shares=SHARES, used=used, limits=LIMITS), queue)) == []
    )


def test_nobody_gives_way_to_a_borrower_and_guests_come_after_him() -> None:
    used = {"lab": HALF}
    queue = waiting(job(1, need(4), vc="lab"), job(2, need(2), level="oppo"))
    decisions = plan(snapshot(Resources(4, 8000, 4), shares=SHARES, used=used, limits=LIMITS), queue)
    assert started(decisions) == [1]
    assert not [one for one in decisions if isinstance(one, Preempt)]


NEEDS = st.builds(
    need,
    st.integers(1, 5),
    st.integers(1, 3000),
    st.integers(0, 2),
    tasks=st.integers(1, 3),
    gang=st.booleans(),
)
JOBS = st.lists(
    st.tuples(NEEDS, st.sampled_from(["default", "lab"]), st.sampled_from(["test", "prod", "oppo"])),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(JOBS, st.integers(0, 8), st.integers(0, 4))
def test_limits_and_rooms_hold_whatever_waits(
    wanted: list[tuple[ResourceRequest, str, str]], most_cpu: int, borrowed_cpu: int
) -> None:
    limit = Resources(max(4, most_cpu), 8000, 4)
    used = {"lab": Resources(borrowed_cpu, 0, 0)}
    jobs: dict[int, QueuedJob] = {
        number: job(number, shape, vc=vc, level=level) for number, (shape, vc, level) in enumerate(wanted)
    }
    free = NODE.minus(Resources(borrowed_cpu, 0, 0))
    decisions = plan(snapshot(free, shares=SHARES, used=used, limits={"lab": limit}), waiting(*jobs.values()))
    taken = {"default": Resources(), "lab": used["lab"], "oppo": Resources()}
    for one in decisions:
        if isinstance(one, Start):
            asked = jobs[one.job_id]
            key = "oppo" if asked.priority_class == "oppo" else asked.vc
            taken[key] = taken[key].plus(asked.need.roles[0].each, len(one.placements))
    assert taken["lab"].fits(limit)
    assert taken["default"].fits(HALF)
    assert taken["default"].plus(taken["lab"]).plus(taken["oppo"]).fits(NODE)
    assert len(started(decisions)) == len(set(started(decisions)))
    assert not set(started(decisions)) & set(waits(decisions))
