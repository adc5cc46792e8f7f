"""Steps of jobs for tests of the controller's transitions, and the states between them."""

from __future__ import annotations

from collections.abc import Sequence

from paicluster.controller import transitions
from paicluster.controller.allocation_records import Allocations
from paicluster.controller.exit_classification import TaskExit
from paicluster.controller.job_record import JobRecord
from paicluster.controller.reconcile_changes import Changes
from paicluster.engines.interface import Node
from paicluster.scheduler.placement import TaskPlacement
from paicluster.store.rows import AttemptRow, TaskRow

PENDING = "AttemptCreationPending"
PREPARING = "AttemptPreparing"
RUNNING = "AttemptRunning"
DELETING = "AttemptDeleting"
ATTEMPT_COMPLETED = "AttemptCompleted"
COMPLETED = "Completed"
FAILED = TaskExit(255, {"exitCode": 255, "originUserExitCode": 7})
SUCCEEDED = TaskExit(0, {"exitCode": 0})
NODES = {"here": Node("here", "10.0.0.1", 8, 8000, (0, 1))}


def end(
    record: JobRecord, outcome: TaskExit, index: int = 0, ended_ms: int = 50, *, lost: bool = False
) -> Changes:
    """A task ends, and the job advances."""
    changes = Changes()
    transitions.task_ended(record, f"main-{index}", outcome, 10, ended_ms, changes, lost=lost)
    transitions.advance(record, changes, 1000)
    return changes


def advanced(record: JobRecord) -> Changes:
    changes = Changes()
    transitions.advance(record, changes, 1000)
    return changes


def attempt_of(changes: Changes, number: int = 0) -> AttemptRow:
    return changes.attempts[1, number]


def always_free(node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
    return True


def place(
    record: JobRecord,
    *placements: TaskPlacement,
    allocations: Allocations | None = None,
    ports_free: transitions.PortsFree = always_free,
) -> tuple[list[TaskRow], Changes]:
    changes = Changes()
    taken = Allocations() if allocations is None else allocations
    placed = transitions.place(record, placements, NODES, taken, ports_free, changes, 77)
    return placed, changes
