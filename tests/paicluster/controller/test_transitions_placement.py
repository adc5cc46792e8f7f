"""Placement of a job's tasks: what is written and allocated, and which ports are drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from paicluster.controller import transitions
from paicluster.controller.allocation_records import Allocations
from paicluster.controller.job_record import JobRecord
from paicluster.scheduler.placement import TaskPlacement
from paicluster.scheduler.quota_limits import HeldResources
from paicluster.scheduler.resource_requests import Resources
from paicluster.store.rows import AttemptRow
from support.job_records import add_task, array, job_record
from support.job_transitions import (
    ATTEMPT_COMPLETED,
    NODES,
    PENDING,
    PREPARING,
    RUNNING,
    attempt_of,
    place,
)
from support.server_fixture import job as job_of
from support.server_fixture import role


def two_roles(**columns: object) -> JobRecord:
    text = job_of("work", "true", cpu=2, memory_mb=100, gpu=1, ports={"http": 2})
    text["taskRoles"]["worker"] = role("true", cpu=1, memory_mb=30)
    return job_record(text, **columns)


def test_placement_writes_a_row_for_each_task_and_allocates_it() -> None:
    record = two_roles(sub_state=PENDING, attempt=3)
    allocations = Allocations()
    placed, changes = place(
        record,
        TaskPlacement("main", 0, "here", (1,)),
        TaskPlacement("worker", 0, "here", ()),
        allocations=allocations,
    )
    main, worker = placed
    assert changes.new_tasks == placed == list(record.tasks.values())
    assert (main.job_id, main.attempt, main.role_order, main.task_index) == (1, 3, 0, 0)
    assert (worker.role, worker.role_order, worker.gpus) == ("worker", 1, "[]")
    assert (main.sub_state, main.node, main.ip, main.gpus) == (PREPARING, "here", "10.0.0.1", "[1]")
    assert (main.cpu, main.memory_mb, main.created_ms) == (2, 100, 77)
    assert (main.task_attempt, main.retries_total, main.retries_accountable) == (0, 0, 0)
    assert main.task_uid == main.uid != worker.uid
    assert len(json.loads(main.ports or "")["http"]) == 2
    assert allocations.by_vc == {"default": Resources(3, 130, 1)}
    assert (record.row.sub_state, changes.job_columns) == (PREPARING, {1: {"sub_state": PREPARING}})
    assert attempt_of(changes, 3) == AttemptRow(1, 3, PREPARING, created_ms=77)
    assert changes.launch == [1]


def test_task_holds_at_least_the_minimum_on_our_nodes_only() -> None:
    record = job_record(job_of("work", "true", instances=2, cpu=1, memory_mb=8), sub_state=PENDING)
    record.minimum = Resources(2, 16)
    allocations = Allocations()
    (ours, external), _ = place(
        record,
        TaskPlacement("main", 0, "here", ()),
        TaskPlacement("main", 1, "", ()),
        allocations=allocations,
    )
    assert (ours.cpu, ours.memory_mb) == (2, 16)
    assert (external.cpu, external.memory_mb, external.node, external.ports) == (1, 8, None, None)
    assert external.task_uid == external.uid
    assert allocations.by_node == {"here": Resources(2, 16)}
    assert allocations.running == {"ada": HeldResources(2, 4, 32, 0)}


def test_placed_job_that_runs_keeps_running() -> None:
    record = array(tasks=2)
    add_task(record, 0)
    _, changes = place(record, TaskPlacement("main", 1, "here", ()))
    assert record.row.sub_state == RUNNING
    assert not changes.attempts and not changes.job_columns
    assert changes.launch == [1]


@pytest.mark.parametrize(
    ("columns", "accountable"),
    [({"exit_code": 1}, 3), ({"exit_code": -101, "lost": True}, 2), ({"exit_code": -1003}, 2)],
)
def test_retried_task_counts_its_attempts(columns: dict[str, object], accountable: int) -> None:
    record = array(task_retries=5)
    add_task(
        record,
        sub_state=ATTEMPT_COMPLETED,
        task_attempt=4,
        retries_total=4,
        retries_accountable=2,
        task_uid="first",
        **columns,
    )
    (task,), _ = place(record, TaskPlacement("main", 0, "here", ()))
    assert (task.task_attempt, task.retries_total, task.retries_accountable) == (5, 5, accountable)
    assert task.task_uid == "first" != task.uid
    assert list(record.tasks) == [task.uid]


class Ports:
    """Free ports: notes how often and for which range it was asked, and says yes at the n-th question."""

    def __init__(self, free_at: int):
        self._free_at = free_at
        self.asked: list[tuple[str, tuple[int, ...], bool]] = []

    def __call__(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        self.asked.append((node, tuple(ports), non_ephemeral))
        return len(self.asked) >= self._free_at


def draw(
    ports: Ports,
    among: range,
    allocations: Allocations | None = None,
    *,
    max_draws: int = 1,
    max_non_ephemeral_draws: int = 1000,
) -> list[int]:
    """The ports of a task that needs two."""
    _, drawn = transitions.draw_free_ports(
        replace(NODES["here"], non_ephemeral_ports=among),
        {"ssh": 1, "http": 1},
        allocations or Allocations(),
        ports,
        max_draws=max_draws,
        max_non_ephemeral_draws=max_non_ephemeral_draws,
    )
    return [port for numbers in drawn.values() for port in numbers]


def test_ports_are_drawn_until_they_are_free() -> None:
    ports = Ports(free_at=3)
    record = job_record(job_of("work", "true"), sub_state=PENDING)
    (task,), _ = place(record, TaskPlacement("main", 0, "here", ()), ports_free=ports)
    drawn = [port for numbers in json.loads(task.ports or "").values() for port in numbers]
    assert [(node, free) for node, _, free in ports.asked] == [("here", True)] * 3
    assert tuple(drawn) == ports.asked[-1][1]
    assert len({numbers for _, numbers, _ in ports.asked}) == 3


def test_ports_outside_the_ephemeral_range_are_tried_next_then_any() -> None:
    ports = Ports(free_at=10_000)
    draw(ports, range(39_000, 40_000), max_draws=20, max_non_ephemeral_draws=30)
    kept = [all(port >= 39_000 for port in numbers) and free for _, numbers, free in ports.asked]
    assert not all(kept[:15]), "first any port"
    assert sum(kept) >= 25
    assert not kept[-1] and not ports.asked[-1][2], "at last any port that is free for now"
    none_outside = Ports(free_at=10_000)
    draw(none_outside, range(0), max_draws=20, max_non_ephemeral_draws=30)
    assert sum(free for *_, free in none_outside.asked) <= 20
    assert not none_outside.asked[-1][2]


def test_ports_of_a_task_differ_and_are_not_allocated() -> None:
    two = Ports(free_at=20)
    draw(two, range(15_000, 15_002))
    assert all(len(set(numbers)) == 2 for _, numbers, _ in two.asked)
    allocations = Allocations()
    allocations._ports.update(range(15_000, 15_100, 2))
    odd = Ports(free_at=10)
    drawn = draw(odd, range(15_000, 15_100), allocations)
    assert tuple(drawn) == odd.asked[-1][1]
    assert all(port % 2 or port >= 15_100 for _, numbers, _ in odd.asked for port in numbers)
