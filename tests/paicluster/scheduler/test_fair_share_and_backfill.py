"""Scheduling plan: priorities, fair share, backfill, preemption and delegation."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from paicluster.scheduler.fair_share import FairShare
from paicluster.scheduler.pending_jobs import PRIORITY_CLASSES, PendingJobs, QueuedJob
from paicluster.scheduler.plan import Pending, Preempt, Snapshot, Start, plan
from paicluster.scheduler.preemption import PreemptibleJob
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest
from support.scheduler_snapshots import NODE, job, node, pending, pending_reasons, request, snapshot, started
from support.work_counter import work_of


def test_higher_priorities_start_first() -> None:
    queue = pending(
        job(1, request(4), priority="oppo"),
        job(2, request(4), priority="test"),
        job(3, request(4), priority="prod"),
        job(4, request(4), priority="crit"),
    )
    assert started(plan(snapshot(), queue)) == [4, 3]


def test_many_jobs_of_one_user_do_not_block_others() -> None:
    many = [job(i, request(2), user="ann") for i in range(1000)]
    assert started(plan(snapshot(), pending(*many, job(5000, request(2), user="bob")))) == [0, 5000, 1, 2]


def test_user_with_the_smaller_share_goes_first() -> None:
    queue = pending(job(1, request(4), user="ann"), job(2, request(4), user="bob"))
    used = {"ann": Resources(4, 0, 0)}
    assert started(plan(snapshot(Resources(4, 8000, 4), used_by_user=used), queue)) == [2]


def test_gang_starts_whole_or_not_at_all() -> None:
    decisions = plan(snapshot(Resources(3, 8000, 0)), pending(job(1, request(1, tasks=4))))
    assert started(decisions) == []
    assert pending_reasons(decisions)[1].reason == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "The job asks for 4 cores; all nodes together have 3 cores free."
    )
    assert not pending_reasons(decisions)[1].unschedulable


def test_tasks_without_a_gang_start_individually() -> None:
    decisions = plan(snapshot(Resources(3, 8000, 0)), pending(job(1, request(1, tasks=4, gang=False))))
    start = next(d for d in decisions if isinstance(d, Start))
    assert [placement.index for placement in start.placements] == [0, 1, 2]


def test_array_limit_is_respected() -> None:
    shape = ResourceRequest((RoleRequest("main", 6, Resources(1, 10, 0)),), gang=False, limit=2)
    decisions = plan(snapshot(), pending(job(1, shape)))
    start = next(d for d in decisions if isinstance(d, Start))
    assert len(start.placements) == 2


def test_backfill_does_not_delay_a_blocked_job() -> None:
    big = job(1, request(1, 100, 4))
    free = Resources(8, 8000, 2)
    cpu_only, gpu_small = job(2, request(1), user="bob"), job(3, request(1, 100, 1), user="cat")
    decisions = plan(snapshot(free), pending(big, cpu_only, gpu_small))
    assert started(decisions) == [2]


def test_job_larger_than_its_virtual_cluster_is_unschedulable() -> None:
    quotas = {"default": Resources(4, 4000, 2), "other": Resources(4, 4000, 2)}
    decisions = plan(snapshot(quotas=quotas), pending(job(1, request(6)), job(2, request(1))))
    assert pending_reasons(decisions)[1].unschedulable
    reason = pending_reasons(decisions)[1].reason
    assert "more resources than the virtual cluster default can have" in reason
    assert reason.endswith("The job asks for 6 cores; the virtual cluster default has at most 4 cores.")
    assert started(decisions) == [2]


def test_virtual_cluster_stays_within_its_quota() -> None:
    quotas = {"default": Resources(4, 4000, 2), "other": Resources(4, 4000, 2)}
    queue = pending(*(job(i, request(2)) for i in range(5)))
    decisions = plan(snapshot(quotas=quotas), queue)
    assert started(decisions) == [0, 1]
    reason = pending_reasons(decisions)[2].reason
    assert reason.endswith("has used up its quota. The job asks for 2 cores; its quota has 0 cores left.")


def test_opportunistic_jobs_use_idle_quota_of_others() -> None:
    quotas = {"default": Resources(4, 4000, 2), "other": Resources(4, 4000, 2)}
    queue = pending(job(1, request(6), priority="oppo"))
    assert started(plan(snapshot(quotas=quotas), queue)) == [1]


def test_newest_opportunistic_jobs_are_preempted_first_and_as_few_as_needed() -> None:
    preemptible = [
        PreemptibleJob(9, (("n", Resources(3, 100, 1), (3,)),)),
        PreemptibleJob(8, (("n", Resources(3, 100, 1), (2,)),)),
    ]
    decisions = plan(snapshot(Resources(2, 7800, 2), preemptible=preemptible), pending(job(20, request(4))))
    assert [d for d in decisions if isinstance(d, Preempt)] == [Preempt(9, 20)]


def test_no_job_is_preempted_twice_or_without_effect() -> None:
    preempting = [PreemptibleJob(9, (("n", Resources(6, 100, 0), ()),), preempting=True)]
    assert not any(
        isinstance(d, Preempt)
        for d in plan(snapshot(Resources(2, 7800, 4), preemptible=preempting), pending(job(20, request(4))))
    )
    small = [PreemptibleJob(9, (("n", Resources(1, 100, 0), ()),))]
    assert not any(
        isinstance(d, Preempt)
        for d in plan(snapshot(Resources(1, 7800, 4), preemptible=small), pending(job(20, request(6))))
    )


_REQUESTS = st.builds(
    request,
    st.integers(0, 4),
    st.sampled_from((0, 100, 2000)),
    st.integers(0, 2),
    tasks=st.integers(1, 4),
    gang=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            _REQUESTS, st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from(PRIORITY_CLASSES)
        ),
        max_size=25,
    ),
    st.integers(0, 8),
    st.integers(0, 4),
)
def test_capacities_hold_for_any_pending_jobs(
    jobs: list[tuple[ResourceRequest, str, str, str]], free_cpu: int, free_gpu: int
) -> None:
    free = Resources(free_cpu, 5000, free_gpu)
    quotas = {"a": Resources(4, 4000, 2), "b": Resources(4, 4000, 2)}
    queue = pending(*(job(i, n, vc=v, user=u, priority=p) for i, (n, v, u, p) in enumerate(jobs)))
    taken, by_vc = Resources(), {"a": Resources(), "b": Resources()}
    gpus: list[int] = []
    for decision in plan(snapshot(free, quotas=quotas), queue):
        if isinstance(decision, Start):
            shape, vc, _, priority = jobs[decision.job_id]
            assert not shape.gang or len(decision.placements) == shape.roles[0].instances
            for placement in decision.placements:
                taken = taken.plus(shape.roles[0].each)
                gpus += placement.gpus
                if priority != "oppo":
                    by_vc[vc] = by_vc[vc].plus(shape.roles[0].each)
    assert taken.fits(free)
    assert len(set(gpus)) == len(gpus) == taken.gpu
    assert all(by_vc[vc].fits(quotas[vc]) for vc in by_vc)


def test_planning_cost_does_not_grow_with_the_number_of_pending_jobs() -> None:
    def work(count: int) -> int:
        shapes = [request(cpu, 100 * cpu) for cpu in range(1, 21)]
        queue = pending(*(job(i, shapes[i % 20], user=f"u{i % 8}") for i in range(count)))
        nothing_free = snapshot(
            Resources(0, 0, 0),
            nodes=[node(Resources(0, 0, 0), total=Resources(64, 64000, 8))],
            quotas={"default": Resources(64, 64000, 8)},
        )
        plan(nothing_free, queue)
        return work_of(lambda: plan(nothing_free, queue))

    # Ten times the jobs, the same work.
    assert work(20_000) < 1.5 * work(2_000)


# -- external schedulers -----------------------------------------------------------


def test_jobs_are_delegated_to_an_external_scheduler_without_nodes() -> None:
    queue = PendingJobs()
    big = ResourceRequest(
        (RoleRequest("a", 2, Resources(1000, 10**9, 100)), RoleRequest("b", 1, Resources(1, 1, 0)))
    )
    for number in range(3):
        queue.add(QueuedJob(number, "slurm", "ann", "test", big))
    snapshot = Snapshot(nodes=[], quotas={}, used={}, self_scheduling=frozenset({"slurm"}))
    decisions = plan(snapshot, queue)
    assert [decision.job_id for decision in decisions] == [0, 1, 2]
    for decision in decisions:
        assert isinstance(decision, Start)
        assert [(placement.role, placement.index, placement.node) for placement in decision.placements] == [
            ("a", 0, ""),
            ("a", 1, ""),
            ("b", 0, ""),
        ]


def test_delegation_respects_the_array_limit() -> None:
    array = ResourceRequest((RoleRequest("a", 9, Resources(1, 1, 0)),), gang=False, limit=4)

    def delegated(partial: dict[int, tuple[tuple[tuple[int, ...], ...], int]]) -> list[int]:
        queue = PendingJobs()
        queue.add(QueuedJob(1, "slurm", "ann", "test", array))
        external = frozenset({"slurm"})
        decisions = plan(Snapshot([], {}, {}, partial=partial, self_scheduling=external), queue)
        return [
            placement.index for one in decisions if isinstance(one, Start) for placement in one.placements
        ]

    assert delegated({}) == [0, 1, 2, 3]
    assert delegated({1: (((4, 5, 6),), 1)}) == [4]
    assert delegated({1: (((5,),), 0)}) == []


def test_backfill_does_not_delay_the_second_blocked_job() -> None:
    # The first lacks GPUs and the second cores: taking cores delays the second, whatever the first lacks.
    first, second = job(1, request(1, 100, 4)), job(2, request(8), user="bob")
    decisions = plan(snapshot(Resources(7, 8000, 2)), pending(first, second, job(3, request(1), user="cat")))
    assert started(decisions) == []
    assert pending_reasons(decisions)[3].reason == "An earlier job is waiting for the same resources."


def test_used_up_quota_does_not_block_opportunistic_jobs() -> None:
    half = Resources(4, 4000, 2)
    queue = pending(job(1, request(2), vc="lab"), job(2, request(4), user="bob", priority="oppo"))
    now = snapshot(half, quotas={"default": half, "lab": half}, used={"lab": half})
    assert started(plan(now, queue)) == [2]


def test_no_more_jobs_are_preempted_than_the_quota_can_use() -> None:
    half = Resources(4, 4000, 2)
    preemptible = [PreemptibleJob(number, (("n", Resources(2, 100, 0), ()),)) for number in (9, 8, 7, 6)]
    # Another shape: of an equal one, the second job would not be tried.
    queue = pending(job(20, request(4), vc="lab"), job(21, request(4, 200), vc="lab", user="bob"))
    now = snapshot(Resources(0, 7600, 4), quotas={"default": half, "lab": half}, preemptible=preemptible)
    assert {d.job_id for d in plan(now, queue) if isinstance(d, Preempt)} == {9, 8}


def test_job_whose_resources_do_not_help_is_not_preempted() -> None:
    cores = PreemptibleJob(9, (("n", Resources(1, 100, 0), ()),))
    gpus = PreemptibleJob(8, (("n", Resources(1, 100, 4), (0, 1, 2, 3)),))
    decisions = plan(
        snapshot(Resources(6, 7800, 0), preemptible=[cores, gpus]), pending(job(20, request(1, 100, 2)))
    )
    assert [d for d in decisions if isinstance(d, Preempt)] == [Preempt(8, 20)]


def test_starved_user_comes_first_once() -> None:
    queue = pending(
        job(1, request(6), user="ann"), job(2, request(2), user="bob"), job(3, request(2), user="ann")
    )
    used = {"ann": Resources(2, 100, 0)}
    free = Resources(6, 7900, 4)
    assert started(plan(snapshot(free, used_by_user=used), queue)) == [2]
    starved = frozenset({("default", "ann")})
    assert started(plan(snapshot(free, used_by_user=used, starved=starved), queue)) == [1]


def test_shape_that_failed_is_not_tried_again_others_are() -> None:
    blocked = request(6)
    queue = pending(
        job(1, blocked, user="ann"),
        job(2, blocked, user="bob"),
        job(3, request(1, 100, 0), user="cat"),
    )
    quotas = {"default": Resources(6, 8000, 4)}
    decisions = plan(
        snapshot(Resources(5, 8000, 4), quotas=quotas, used={"default": Resources(1, 0, 0)}), queue
    )
    assert list(pending_reasons(decisions)) == [1, 3], "the second job has the shape of the first"


def test_users_take_turns_by_their_share_after_every_start() -> None:
    jobs = [job(number, request(1), user="ann") for number in (1, 2, 3)]
    jobs += [job(number, request(1, 200), user="bob") for number in (4, 5)]
    jobs += [job(6, request(1, 300), user="bob")]
    assert started(plan(snapshot(), pending(*jobs))) == [1, 4, 2, 5, 3, 6]


def test_start_in_one_virtual_cluster_leaves_the_user_starved_in_another() -> None:
    share = FairShare(NODE, {"ann": Resources(4, 0, 0)}, {("a", "ann"), ("b", "ann")})
    assert (share.share_of("a", "ann"), share.share_of("c", "ann"), share.share_of("a", "bob")) == (
        -1,
        0.5,
        0,
    )
    share.add("a", "ann", Resources(2, 0, 0))
    assert (share.share_of("a", "ann"), share.share_of("b", "ann")) == (0.75, -1)
    share.add("a", "bob", Resources(0, 8000, 0))
    assert share.share_of("a", "bob") == 1.0


def test_array_whose_limit_is_reached_does_not_hold_up_the_next() -> None:
    array = request(1, tasks=3, gang=False)
    for priority in ("test", "oppo"):
        queue = pending(job(1, array, priority=priority), job(2, array, priority=priority))
        decisions = plan(snapshot(partial={1: (((2,),), 0)}), queue)
        assert started(decisions) == [2]
        assert not pending_reasons(decisions)


def test_array_starts_the_tasks_that_are_still_to_be_started() -> None:
    decisions = plan(
        snapshot(partial={1: (((2, 4, 5),), 2)}), pending(job(1, request(1, tasks=6, gang=False)))
    )
    [start] = [one for one in decisions if isinstance(one, Start)]
    assert [(one.index, one.node) for one in start.placements] == [(2, "n"), (4, "n")]


def test_array_fills_the_quota_and_the_nodes_role_by_role() -> None:
    roles = (RoleRequest("big", 2, Resources(5, 1, 0)), RoleRequest("small", 9, Resources(1, 1, 0)))
    array = job(1, ResourceRequest(roles, gang=False))

    def placed(**more: object) -> list[tuple[str, int]]:
        [start] = [one for one in plan(snapshot(**more), pending(array)) if isinstance(one, Start)]  # type: ignore[arg-type]
        return [(one.role, one.index) for one in start.placements]

    assert placed() == [("big", 0), ("small", 0), ("small", 1), ("small", 2)]
    assert placed(quotas={"default": Resources(6, 8000, 4)}) == [("big", 0), ("small", 0)]
    assert placed(used={"default": Resources(5, 0, 0)}) == [("small", 0), ("small", 1), ("small", 2)]


def test_reasons_of_pending_jobs_in_full() -> None:
    quotas = {"default": Resources(4, 4000, 2), "lab": Resources(4, 4000, 2)}
    queue = pending(job(1, request(6), vc="lab"))
    idle = snapshot(Resources(8, 8000, 4), quotas=quotas, max_capacities={"lab": NODE})
    assert started(plan(idle, queue)) == [1]
    used = {"lab": Resources(3, 0, 0)}
    lent = snapshot(Resources(8, 8000, 4), quotas=quotas, used=used, max_capacities={"lab": NODE})
    [large] = plan(lent, pending(job(1, request(6), vc="lab")))
    assert isinstance(large, Pending)
    assert large.reason == (
        "The job requests more than the quota of lab: it starts when enough resources are idle. "
        "The job asks for 6 cores; the quota of lab is 4 cores."
    )
    [waits] = plan(
        snapshot(quotas=quotas, used={"lab": Resources(3, 0, 0)}), pending(job(1, request(2), vc="lab"))
    )
    assert isinstance(waits, Pending)
    assert waits.reason == (
        "The virtual cluster lab has used up its quota. The job asks for 2 cores; its quota has 1 core left."
    )
    [unknown] = plan(snapshot(quotas=quotas), pending(job(1, request(2), vc="nowhere")))
    assert isinstance(unknown, Pending)
    assert unknown.unschedulable
    assert unknown.reason.endswith(
        "asks for 2 cores and 100 MB of memory; the virtual cluster nowhere has at most "
        "0 cores and 0 MB of memory."
    )


def test_array_does_not_delay_a_blocked_job() -> None:
    blocked = job(1, request(8), user="ann")
    array = job(2, request(1, tasks=4, gang=False), user="bob")
    assert started(plan(snapshot(Resources(7, 8000, 4)), pending(blocked, array))) == []
    # Nothing that the blocked job lacks.
    gpus = job(3, request(0, 0, 1, tasks=4, gang=False), user="bob")
    assert started(plan(snapshot(Resources(7, 8000, 4)), pending(blocked, gpus))) == [3]


def test_reason_of_an_opportunistic_job_names_no_quota() -> None:
    large = job(2, request(5), priority="oppo")
    used_up = snapshot(Resources(5, 8000, 4), quotas={"default": Resources(4, 8000, 4), "lab": NODE})
    decisions = plan(used_up, pending(job(1, request(6), vc="lab"), large))
    assert pending_reasons(decisions)[2].reason == "An earlier job is waiting for the same resources."
