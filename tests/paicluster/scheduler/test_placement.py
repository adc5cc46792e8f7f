"""Capacity of nodes: best fit, and the words for a shortage."""

from __future__ import annotations

import pytest

from paicluster.scheduler.placement import NodeCapacity, TaskPlacement, place_tasks
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest
from paicluster.scheduler.shortage import Misfit, compare, explain_shortage, never_fits, show_amount
from support.scheduler_snapshots import request

TOTAL = Resources(8, 8000, 4)


def node(
    name: str, cpu: int, memory_mb: int = 8000, gpus: tuple[int, ...] = (), gpu: int = -1
) -> NodeCapacity:
    return NodeCapacity(name, TOTAL, Resources(cpu, memory_mb, len(gpus) if gpu < 0 else gpu), gpus)


def nodes_of(placements: list[TaskPlacement]) -> list[str]:
    return [placement.node for placement in placements]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (node("full", 4), node("empty", 8)),
        (node("full", 4, 500), node("empty", 4, 900)),
        (node("full", 8, gpus=(1,)), node("empty", 4, gpus=(0, 1))),
    ],
    ids=["cores", "memory", "GPUs before cores"],
)
def test_fullest_node_that_has_enough_is_taken(first: NodeCapacity, second: NodeCapacity) -> None:
    shape = request(1)
    assert nodes_of(place_tasks([first.copy(), second.copy()], shape)) == ["full"]
    assert nodes_of(place_tasks([second.copy(), first.copy()], shape)) == ["full"]
    large = ResourceRequest((RoleRequest("main", 1, Resources(*map(max, first.free, second.free))),))
    if large.minimum.fits(second.free):
        assert nodes_of(place_tasks([first.copy(), second.copy()], large)) == ["empty"]


def test_task_gets_the_first_free_gpus_and_takes_them() -> None:
    there = node("n", 8, gpus=(0, 2, 3))
    placements = place_tasks([there], request(2, 100, 2))
    assert placements == [TaskPlacement("main", 0, "n", (0, 2))]
    assert (there.free, there.gpus) == (Resources(6, 7900, 1), (3,))


def test_node_whose_gpus_are_in_use_does_not_fit() -> None:
    # What is free may count more than the indexes: a GPU that failed is in neither.
    assert place_tasks([node("n", 8, gpus=(1,), gpu=2)], request(1, 100, 2)) == []


def test_gang_stops_at_the_first_task_that_does_not_fit_others_go_on() -> None:
    roles = (RoleRequest("big", 1, Resources(9, 1, 0)), RoleRequest("small", 2, Resources(1, 1, 0)))
    assert place_tasks([node("n", 8)], ResourceRequest(roles)) == []
    alone = place_tasks([node("n", 8)], ResourceRequest(roles, gang=False))
    assert [(placement.role, placement.index) for placement in alone] == [("small", 0), ("small", 1)]
    some = place_tasks([node("n", 8)], ResourceRequest(roles, gang=False), [[], [7]])
    assert [(placement.role, placement.index) for placement in some] == [("small", 7)]


def test_released_resources_can_be_allocated_again() -> None:
    there = node("n", 2, 100, (3,))
    there.release(Resources(1, 50, 2), (0, 1))
    assert (there.free, there.gpus) == (Resources(3, 150, 3), (0, 1, 3))
    there.undo_release(Resources(1, 50, 2), (0, 1))
    assert (there.free, there.gpus) == (Resources(2, 100, 1), (3,))
    assert there.empty_copy() == NodeCapacity("n", TOTAL, TOTAL, (0, 1, 2, 3))


def test_shortage_counts_the_nodes_that_lack_each_resource() -> None:
    nodes = [node("a", 1, 50), node("b", 1, 900), node("c", 8, 50)]
    assert explain_shortage(nodes, request(2, 100)) == (
        "0/3 nodes are available: 2 Insufficient cpu, 2 Insufficient memory."
    )
    assert explain_shortage([], request(1)) == "0/0 nodes are available."
    assert explain_shortage([node("a", 1)], request(1)) == ""


def test_shortage_names_what_the_largest_task_lacks() -> None:
    nodes = [node("a", 2, gpus=(0,)), node("b", 3, gpus=(0, 1))]
    roles = (RoleRequest("small", 1, Resources(1, 1, 0)), RoleRequest("big", 1, Resources(1, 1, 3)))
    assert explain_shortage(nodes, ResourceRequest(roles)) == (
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. "
        "A task asks for 3 GPUs; no node has more than 2 GPUs free."
    )
    empty = [NodeCapacity("a", TOTAL, TOTAL, (0, 1, 2, 3))]
    assert explain_shortage(empty, request(9)).endswith(
        "A task asks for 9 cores; no node has more than 8 cores."
    )
    used_up = [node("a", -1)]
    assert explain_shortage(used_up, request(1)).endswith(
        "A task asks for 1 core; no node has more than 0 cores free."
    )


def test_shortage_names_the_sums_where_each_task_fits() -> None:
    nodes = [node("a", 2), node("b", 3)]
    assert explain_shortage(nodes, request(2, 1, tasks=3)) == (
        "0/2 nodes are available: 2 Insufficient cpu. "
        "The job asks for 6 cores; all nodes together have 5 cores free."
    )
    # The sums are enough: it is a matter of fragments.
    assert explain_shortage([node("a", 3), node("b", 3)], request(2, 1, tasks=3)) == (
        "0/2 nodes are available: 2 Insufficient cpu."
    )


def test_compare_names_every_resource_that_is_not_enough() -> None:
    shape = request(9, 200, 1)
    assert compare(shape, Resources(1, 100, 0), "there are {}") == (
        "The job asks for 9 cores and 200 MB of memory and 1 GPU; "
        "there are 1 core and 100 MB of memory and 0 GPUs."
    )
    assert compare(shape, Resources(9, 200, 1), "there are {}") == ""
    alone = request(2, 1, tasks=4, gang=False)
    assert (
        compare(alone, Resources(-3, 1, 0), "there are {}") == "A task asks for 2 cores; there are 0 cores."
    )


def test_job_that_never_fits_says_why() -> None:
    empty = [NodeCapacity(name, TOTAL, TOTAL, (0, 1, 2, 3)) for name in "ab"]
    both = TOTAL.plus(TOTAL)
    assert never_fits(empty, "lab", both, request(8, 1, tasks=2)) is None
    assert never_fits(empty, "lab", both, request(9)) == Misfit(
        "0/2 nodes are available: 2 Insufficient cpu. "
        "A task asks for 9 cores; no node has more than 8 cores.",
        "A task asks for 9 cores; no node has more than 8 cores.",
    )
    # The numbers of the virtual cluster tell more than those of the nodes.
    numbers = "The job asks for 9 cores; the virtual cluster lab has at most 4 cores."
    assert never_fits(empty, "lab", Resources(4, 8000, 4), request(9)) == Misfit(
        f"0/2 nodes are available: 2 Insufficient cpu. {numbers}", numbers
    )
    # Only the virtual cluster is too small.
    numbers = "The job asks for 6 cores; the virtual cluster lab has at most 4 cores."
    assert never_fits(empty, "lab", Resources(4, 8000, 4), request(6)) == Misfit(
        f"The job requests more resources than the virtual cluster lab can have. {numbers}", numbers
    )
    # Fragments: neither a node nor the sum is too small.
    words = "0/2 nodes are available: 2 Insufficient cpu."
    assert never_fits(empty, "lab", both, request(5, 1, tasks=3)) == Misfit(words, words)
    # Of tasks without a gang, one must fit.
    assert never_fits(empty, "lab", both, request(5, 1, tasks=3, gang=False)) is None
    assert never_fits(empty, "lab", both, request(9, 1, tasks=3, gang=False)) is not None
    assert never_fits([], "lab", both, request(1)) == Misfit(*["0/0 nodes are available."] * 2)


def test_amounts_are_singular_or_plural() -> None:
    unit = ("core", "cores")
    assert [show_amount(number, unit) for number in (0, 1, 2)] == ["0 cores", "1 core", "2 cores"]
