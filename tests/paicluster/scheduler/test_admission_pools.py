"""Admission pools: nodes that another scheduler fills when ours says so."""

from __future__ import annotations

from paicluster.scheduler.placement import NodeCapacity
from paicluster.scheduler.plan import AdmissionPool, Preempt, Snapshot, Start, TaskPlacement, plan
from paicluster.scheduler.preemption import PreemptibleJob
from paicluster.scheduler.quota_limits import HeldResources, QuotaLimit
from paicluster.scheduler.resource_requests import Resources
from support.scheduler_snapshots import NODE, job, pending, pending_reasons, request, snapshot, started

LAB = frozenset({"lab"})


def pool(*free: Resources, vcs: frozenset[str] = LAB, **more: object) -> AdmissionPool:
    nodes = [
        NodeCapacity(f"k{number}", NODE, each, tuple(range(each.gpu))) for number, each in enumerate(free)
    ]
    return AdmissionPool(vcs, nodes, **more)  # type: ignore[arg-type]


def with_pools(*pools: AdmissionPool, **more: object) -> Snapshot:
    vcs = frozenset().union(*(each.virtual_clusters for each in pools))
    quotas = {"default": NODE, **dict.fromkeys(vcs, NODE)}
    return snapshot(**{"quotas": quotas, "admitted": vcs, "pools": pools, **more})


def test_tasks_of_a_pool_start_without_nodes() -> None:
    decisions = plan(with_pools(pool(NODE)), pending(job(1, request(2, gpu=1, tasks=2), vc="lab")))
    assert decisions == [Start(1, (TaskPlacement("main", 0, "", ()), TaskPlacement("main", 1, "", ())))]


def test_jobs_start_in_their_pool_only() -> None:
    queue = pending(job(1, request(8), vc="lab"), job(2, request(8)), job(3, request(8), vc="lab"))
    decisions = plan(with_pools(pool(NODE)), queue)
    assert started(decisions) == [2, 1], "job 3 does not take what is free on our own nodes"


def test_gang_must_fit_on_the_nodes_and_not_in_their_sum() -> None:
    halves = pool(Resources(4, 8000, 4), Resources(4, 8000, 4))
    decisions = plan(with_pools(halves), pending(job(1, request(6), vc="lab")))
    assert not started(decisions) and not pending_reasons(decisions)[1].unschedulable
    decisions = plan(with_pools(halves), pending(job(1, request(4, tasks=2), vc="lab")))
    assert started(decisions) == [1]


def test_quota_of_a_virtual_cluster_holds_in_a_pool() -> None:
    quotas = {"default": NODE, "lab": Resources(2, 8000, 4)}
    queue = pending(job(1, request(2), vc="lab"), job(2, request(1), vc="lab"))
    decisions = plan(with_pools(pool(NODE), quotas=quotas), queue)
    assert started(decisions) == [1]
    assert "used up its quota" in pending_reasons(decisions)[2].reason


def test_quota_of_a_user_holds_over_our_nodes_and_all_pools() -> None:
    limits = {"ann": (QuotaLimit("user ann", HeldResources(2, 100, 100000, 10)),)}
    queue = pending(job(1, request()), job(2, request(), vc="lab"), job(3, request(), vc="lab"))
    decisions = plan(with_pools(pool(NODE), user_quotas=limits), queue)
    assert started(decisions) == [1, 2]
    assert "user ann" in pending_reasons(decisions)[3].reason


def test_node_of_two_pools_is_filled_once() -> None:
    pools = pool(NODE), pool(NODE, vcs=frozenset({"team"}))
    queue = pending(job(1, request(6), vc="lab"), job(2, request(6), vc="team"))
    assert len(started(plan(with_pools(*pools), queue))) == 1


def test_opportunistic_job_of_the_pool_is_preempted() -> None:
    victims = [PreemptibleJob(7, (("k0", Resources(8, 100, 4), (-1, -2, -3, -4)),))]
    full = pool(Resources(0, 7900, 0), preemptible=victims)
    decisions = plan(with_pools(full), pending(job(1, request(4, gpu=2), vc="lab")))
    assert [one for one in decisions if isinstance(one, Preempt)] == [Preempt(7, 1)]


def test_virtual_cluster_whose_pool_is_not_known_yet_waits_without_a_word() -> None:
    unknown = with_pools(pool(NODE, vcs=frozenset()), admitted=LAB)
    assert plan(unknown, pending(job(1, request(), vc="lab"))) == []


def test_virtual_cluster_whose_nodes_cannot_be_known_is_delegated() -> None:
    decisions = plan(snapshot(self_scheduling=LAB), pending(job(1, request(100), vc="lab")))
    assert started(decisions) == [1]
