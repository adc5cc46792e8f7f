"""What the scheduler promises, on snapshots."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from paicluster.scheduler.pending_jobs import LEVELS, PendingJobs, QueuedJob
from paicluster.scheduler.plan import Preempt, PreemptibleJob, Snapshot, Start, plan
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest
from support.scheduler_snapshots import job, need, room, snapshot, started, waiting, waits
from support.work_counter import work_of


def test_higher_priorities_start_first() -> None:
    queue = waiting(
        job(1, need(4), level="oppo"),
        job(2, need(4), level="test"),
        job(3, need(4), level="prod"),
        job(4, need(4), level="crit"),
    )
    assert started(plan(snapshot(), queue)) == [4, 3]


def test_one_users_thousand_jobs_do_not_block_the_team() -> None:
    many = [job(i, need(2), user="ann") for i in range(1000)]
    assert started(plan(snapshot(), waiting(*many, job(5000, need(2), user="bob")))) == [0, 5000, 1, 2]


def test_a_user_who_holds_less_goes_first() -> None:
    queue = waiting(job(1, need(4), user="ann"), job(2, need(4), user="bob"))
    held = {"ann": Resources(4, 0, 0)}
    assert started(plan(snapshot(Resources(4, 8000, 4), held_by=held), queue)) == [2]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    decisions = plan(snapshot(Resources(3, 8000, 0)), waiting(job(1, need(1, tasks=4))))
    assert started(decisions) == []
    assert waits(decisions)[1].reason == "0/1 nodes are available: 1 Insufficient cpu."
    assert not waits(decisions)[1].never


def test_without_a_gang_tasks_start_as_they_can() -> None:
    decisions = plan(snapshot(Resources(3, 8000, 0)), waiting(job(1, need(1, tasks=4, gang=False))))
    start = next(d for d in decisions if isinstance(d, Start))
    assert [seat.index for seat in start.placements] == [0, 1, 2]


def test_an_array_starts_no_more_than_its_limit() -> None:
    shape = ResourceRequest((RoleRequest("main", 6, Resources(1, 10, 0)),), gang=False, limit=2)
    decisions = plan(snapshot(), waiting(job(1, shape)))
    start = next(d for d in decisions if isinstance(d, Start))
    assert len(start.placements) == 2


def test_a_small_job_passes_only_where_it_delays_nobody() -> None:
    big = job(1, need(1, 100, 4))
    free = Resources(8, 8000, 2)
    cpu_only, gpu_small = job(2, need(1), user="bob"), job(3, need(1, 100, 1), user="cat")
    decisions = plan(snapshot(free), waiting(big, cpu_only, gpu_small))
    assert started(decisions) == [2]


def test_a_job_larger_than_its_share_waits_for_ever_and_says_so() -> None:
    shares = {"default": Resources(4, 4000, 2), "other": Resources(4, 4000, 2)}
    decisions = plan(snapshot(shares=shares), waiting(job(1, need(6)), job(2, need(1))))
    assert waits(decisions)[1].never
    assert "more than the virtual cluster default has" in waits(decisions)[1].reason
    assert started(decisions) == [2]


def test_a_virtual_cluster_stays_within_its_share() -> None:
    shares = {"default": Resources(4, 4000, 2), "other": Resources(4, 4000, 2)}
    queue = waiting(*(job(i, need(2)) for i in range(5)))
    decisions = plan(snapshot(shares=shares), queue)
    assert started(decisions) == [0, 1]
    assert "all of its share in use" in waits(decisions)[2].reason


def test_opportunistic_jobs_use_the_idle_share_of_others() -> None:
    shares = {"default": Resources(4, 4000, 2), "other": Resources(4, 4000, 2)}
    queue = waiting(job(1, need(6), level="oppo"))
    assert started(plan(snapshot(shares=shares), queue)) == [1]


def test_opportunistic_jobs_give_way_the_newest_first_and_only_as_many_as_needed() -> None:
    guests = [
        PreemptibleJob(9, (("n", Resources(3, 100, 1), (3,)),)),
        PreemptibleJob(8, (("n", Resources(3, 100, 1), (2,)),)),
    ]
    decisions = plan(snapshot(Resources(2, 7800, 2), guests=guests), waiting(job(20, need(4))))
    assert [d for d in decisions if isinstance(d, Preempt)] == [Preempt(9, 20)]


def test_nobody_is_asked_to_leave_twice_or_in_vain() -> None:
    leaving = [PreemptibleJob(9, (("n", Resources(6, 100, 0), ()),), leaving=True)]
    assert not any(
        isinstance(d, Preempt)
        for d in plan(snapshot(Resources(2, 7800, 4), guests=leaving), waiting(job(20, need(4))))
    )
    small = [PreemptibleJob(9, (("n", Resources(1, 100, 0), ()),))]
    assert not any(
        isinstance(d, Preempt)
        for d in plan(snapshot(Resources(1, 7800, 4), guests=small), waiting(job(20, need(6))))
    )


_NEEDS = st.builds(
    need,
    st.integers(0, 4),
    st.sampled_from((0, 100, 2000)),
    st.integers(0, 2),
    tasks=st.integers(1, 4),
    gang=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(_NEEDS, st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from(LEVELS)), max_size=25
    ),
    st.integers(0, 8),
    st.integers(0, 4),
)
def test_the_books_balance_whatever_waits(
    jobs: list[tuple[ResourceRequest, str, str, str]], free_cpu: int, free_gpu: int
) -> None:
    free = Resources(free_cpu, 5000, free_gpu)
    shares = {"a": Resources(4, 4000, 2), "b": Resources(4, 4000, 2)}
    queue = waiting(*(job(i, n, vc=v, user=u, level=p) for i, (n, v, u, p) in enumerate(jobs)))
    taken, by_vc = Resources(), {"a": Resources(), "b": Resources()}
    gpus: list[int] = []
    for decision in plan(snapshot(free, shares=shares), queue):
        if isinstance(decision, Start):
            shape, vc, _, level = jobs[decision.job_id]
            assert not shape.gang or len(decision.placements) == shape.roles[0].instances
            for seat in decision.placements:
                taken = taken.plus(shape.roles[0].each)
                gpus += seat.gpus
                if level != "oppo":
                    by_vc[vc] = by_vc[vc].plus(shape.roles[0].each)
    assert taken.fits(free)
    assert len(set(gpus)) == len(gpus) == taken.gpu
    assert all(by_vc[vc].fits(shares[vc]) for vc in by_vc)


def test_the_cost_of_a_pass_does_not_grow_with_the_jobs_that_wait() -> None:
    def work(count: int) -> int:
        shapes = [need(cpu, 100 * cpu) for cpu in range(1, 21)]
        queue = waiting(*(job(i, shapes[i % 20], user=f"u{i % 8}") for i in range(count)))
        nothing_free = snapshot(
            Resources(0, 0, 0),
            nodes=[room(Resources(0, 0, 0), total=Resources(64, 64000, 8))],
            shares={"default": Resources(64, 64000, 8)},
        )
        plan(nothing_free, queue)
        return work_of(lambda: plan(nothing_free, queue))

    # Ten times the jobs, the same work.
    assert work(20_000) < 1.5 * work(2_000)


# -- engines that find the places themselves -----------------------------------------------------------


def test_a_virtual_cluster_that_schedules_itself_gets_its_jobs_at_once_and_without_places() -> None:
    waiting = PendingJobs()
    big = ResourceRequest(
        (RoleRequest("a", 2, Resources(1000, 10**9, 100)), RoleRequest("b", 1, Resources(1, 1, 0)))
    )
    for number in range(3):
        waiting.add(QueuedJob(number, "slurm", "ann", "test", big))
    snapshot = Snapshot(nodes=[], shares={}, used={}, self_scheduling=frozenset({"slurm"}))
    decisions = plan(snapshot, waiting)
    assert [decision.job_id for decision in decisions] == [0, 1, 2]
    for decision in decisions:
        assert isinstance(decision, Start)
        assert [(seat.role, seat.index, seat.node) for seat in decision.placements] == [
            ("a", 0, ""),
            ("a", 1, ""),
            ("b", 0, ""),
        ]


def test_of_a_job_without_a_gang_only_so_many_tasks_as_it_allows_are_handed_over() -> None:
    array = ResourceRequest((RoleRequest("a", 9, Resources(1, 1, 0)),), gang=False, limit=4)

    def handed_over(partial: dict[int, tuple[tuple[tuple[int, ...], ...], int]]) -> list[int]:
        waiting = PendingJobs()
        waiting.add(QueuedJob(1, "slurm", "ann", "test", array))
        handed = frozenset({"slurm"})
        decisions = plan(Snapshot([], {}, {}, partial=partial, self_scheduling=handed), waiting)
        return [seat.index for one in decisions if isinstance(one, Start) for seat in one.placements]

    assert handed_over({}) == [0, 1, 2, 3]
    assert handed_over({1: (((4, 5, 6),), 1)}) == [4]
    assert handed_over({1: (((5,),), 0)}) == []


def test_nobody_passes_the_second_who_waits_either() -> None:
    # The first lacks GPUs and the second cores: what takes cores delays the second, whatever the first lacks.
    first, second = job(1, need(1, 100, 4)), job(2, need(8), user="bob")
    decisions = plan(snapshot(Resources(7, 8000, 2)), waiting(first, second, job(3, need(1), user="cat")))
    assert started(decisions) == []
    assert waits(decisions)[3].reason == "Another job that waits longer needs the same resources."


def test_a_full_virtual_cluster_whose_jobs_wait_keeps_guests_from_nothing() -> None:
    half = Resources(4, 4000, 2)
    queue = waiting(job(1, need(2), vc="lab"), job(2, need(4), user="bob", level="oppo"))
    now = snapshot(half, shares={"default": half, "lab": half}, used={"lab": half})
    assert started(plan(now, queue)) == [2]


def test_no_more_guests_leave_than_a_share_can_use() -> None:
    half = Resources(4, 4000, 2)
    guests = [PreemptibleJob(number, (("n", Resources(2, 100, 0), ()),)) for number in (9, 8, 7, 6)]
    queue = waiting(job(20, need(4), vc="lab"), job(21, need(4), vc="lab", user="bob"))
    now = snapshot(Resources(0, 7600, 4), shares={"default": half, "lab": half}, guests=guests)
    assert {d.job_id for d in plan(now, queue) if isinstance(d, Preempt)} == {9, 8}


def test_a_guest_who_holds_nothing_that_helps_stays() -> None:
    cores = PreemptibleJob(9, (("n", Resources(1, 100, 0), ()),))
    gpus = PreemptibleJob(8, (("n", Resources(1, 100, 4), (0, 1, 2, 3)),))
    decisions = plan(snapshot(Resources(6, 7800, 0), guests=[cores, gpus]), waiting(job(20, need(1, 100, 2))))
    assert [d for d in decisions if isinstance(d, Preempt)] == [Preempt(8, 20)]


def test_who_got_nothing_for_too_long_comes_first_once() -> None:
    queue = waiting(job(1, need(6), user="ann"), job(2, need(2), user="bob"), job(3, need(2), user="ann"))
    held = {"ann": Resources(2, 100, 0)}
    free = Resources(6, 7900, 4)
    assert started(plan(snapshot(free, held_by=held), queue)) == [2]
    overdue = frozenset({("default", "ann")})
    assert started(plan(snapshot(free, held_by=held, overdue=overdue), queue)) == [1]
