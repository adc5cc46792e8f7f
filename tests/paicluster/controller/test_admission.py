"""Nodes that an external scheduler fills when we say so."""

from __future__ import annotations

from itertools import count

from paicluster.controller.admission import free_capacity, held_on
from paicluster.controller.allocation_records import AllocationOwner, Allocations
from paicluster.engines.interface import FreeNode, FreeNodes
from paicluster.scheduler.quota_limits import HeldResources
from paicluster.scheduler.resource_requests import Resources

NODES = [FreeNode("a", 8, 8000, 2, 8, 8000, 2), FreeNode("b", 8, 8000, 2, 4, 4000, 1)]
TASK = Resources(4, 1000, 1)


def free(*counted: str, **admitted: Resources) -> dict[str, Resources]:
    nodes = free_capacity(FreeNodes(NODES, set(counted)), admitted)
    return {node.name: node.free for node in nodes}


def test_admitted_tasks_without_a_node_take_one_by_best_fit() -> None:
    assert free() == {"a": Resources(8, 8000, 2), "b": Resources(4, 4000, 1)}
    assert free(one=TASK) == {"a": Resources(8, 8000, 2), "b": Resources(0, 3000, 0)}
    assert free(one=TASK, two=TASK)["a"] == Resources(4, 7000, 1)


def test_task_that_is_counted_on_its_node_takes_nothing_more() -> None:
    assert free("one", one=TASK) == free()


def test_task_that_fits_nowhere_takes_nothing() -> None:
    assert free(large=Resources(9, 1, 0)) == free()


def test_gpus_of_victims_have_numbers_of_their_own() -> None:
    numbers = count(-1, -1)
    first = held_on({"a"}, [("a", TASK), ("", TASK), ("gone", TASK)], numbers)
    second = held_on({"a"}, [("a", Resources(1, 1, 2))], numbers)
    assert [gpus for _, _, gpus in (*first, *second)] == [(-1,), (-2, -3)]


def test_admitted_tasks_count_for_their_virtual_cluster_and_user() -> None:
    allocations = Allocations(frozenset({"lab"}))
    allocations.allocate_delegated("one", AllocationOwner("lab", "ann", preemptible=False), TASK)
    allocations.allocate_delegated("two", AllocationOwner("slurm", "ann", preemptible=False), TASK)
    allocations.allocate_delegated("low", AllocationOwner("lab", "bob", preemptible=True), TASK)
    assert allocations.by_vc == {"lab": TASK}
    assert allocations.by_user == {"ann": TASK, "bob": TASK}
    assert allocations.running["ann"] == HeldResources(2, *TASK).plus(HeldResources(0, *TASK))
    assert set(allocations.admitted_to({"lab"})) == {"one", "low"}
    for uid in ("one", "two", "low"):
        allocations.free(uid)
    assert allocations.by_vc == {"lab": Resources()} and not allocations.running
    assert not allocations.admitted_to({"lab"})
