"""Record of an active job: its rows and its parsed spec in memory. The database is authoritative."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Container
from dataclasses import dataclass, field

from paicluster.controller.allocation_records import AllocationOwner
from paicluster.controller.attempt_tasks import ATTEMPT_COMPLETED as ATTEMPT_COMPLETED
from paicluster.controller.attempt_tasks import COMPLETED as COMPLETED
from paicluster.controller.attempt_tasks import AttemptTasks
from paicluster.controller.exit_classification import NOT_LAUNCHED, PREEMPTED
from paicluster.controller.pending_queue import priority_class_of
from paicluster.scheduler.pending_jobs import QueuedJob
from paicluster.scheduler.plan import OPPORTUNISTIC
from paicluster.scheduler.resource_requests import (
    NO_MINIMUM,
    Resources,
    SchedulingRequest,
    encode,
    request_of,
)
from paicluster.store.rows import AttemptRow, JobRow, PendingJob, TaskRow
from paiprotocol.jobs import JobSpec
from paiprotocol.jobs.completion import TaskOutcome
from paiprotocol.jobs.retries import RetryCounts, RetryDecision, decide_retry
from paiprotocol.jobs.task_environment import TaskPlacement

PENDING = "AttemptCreationPending"
PREPARING = "AttemptPreparing"
RUNNING = "AttemptRunning"
DELETING = "AttemptDeleting"
# An attempt that ran this long made progress: its failure does not continue the streak before it.
_PROGRESS_MS = 600_000


def ran_long(launched_ms: int | None, completed_ms: int | None) -> bool:
    """Whether an attempt made progress before it ended."""
    return launched_ms is not None and (completed_ms or 0) - launched_ms >= _PROGRESS_MS


@dataclass(slots=True)
class JobRecord:
    row: JobRow
    job: JobSpec
    sealed: bytes | None
    attempt: AttemptRow | None = None
    # What each task holds at least.
    minimum: Resources = NO_MINIMUM
    # Tasks of the current attempt by uid, the latest attempt of each.
    tasks: AttemptTasks = field(init=False)
    launching: asyncio.Task[None] | None = None
    # Whether the latest intent to start tasks was committed; before that none of them may run.
    written: asyncio.Future[bool] | None = None
    # Tasks passed to the engine; of these, the ones found not to have started, which are launched again; and
    # how often that happened.
    launched: set[str] = field(default_factory=set)
    to_relaunch: set[str] = field(default_factory=set)
    relaunches: int = 0
    # The transient error of the last launch, the number of such failures, and whether the job is backing off.
    # Not in the database: a new controller tries at once.
    launch_error: str = ""
    launch_failures: int = 0
    deferred: bool = False
    # Why no task of the job can ever be launched: its specification is invalid.
    launch_rejection: str = ""
    # Why the job must not be started: servers died over it.
    condemned: str = ""
    # Tasks that ended and are started again after a delay.
    backing_off: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tasks = AttemptTasks(self.job.task_roles)

    @property
    def intent_committed(self) -> asyncio.Future[bool] | None:
        """The future `written`, shielded: cancelling one waiter must not cancel it for the others."""
        return None if self.written is None else asyncio.shield(self.written)

    @property
    def stop_requested(self) -> bool:
        return self.row.execution_type == "STOP"

    @property
    def live(self) -> list[TaskRow]:
        return list(self.tasks.live.values())

    @property
    def to_launch(self) -> list[str]:
        """Tasks not yet passed to the engine. Others in this state are launched but not seen running."""
        return [
            uid
            for uid, task in self.tasks.live.items()
            if task.sub_state == PREPARING and uid not in self.launched
        ]

    def launch_again(self, uid: str) -> None:
        """A launched task did not start. All waiting tasks of a gang are launched again together."""
        if uid in self.launched:
            again = [t.uid for t in self.live if t.sub_state == PREPARING] if self.job.gang else [uid]
            self.launched.difference_update(again)
            self.to_relaunch.update(again)

    @property
    def preemptible(self) -> bool:
        return priority_class_of(self.row.priority) == OPPORTUNISTIC

    @property
    def preempting(self) -> bool:
        """Whether the job is being preempted: its tasks must stop although the attempt has no outcome."""
        return self.row.exit_code is None and any(task.stop_requested for task in self.live)

    @property
    def unlaunched(self) -> bool:
        """Whether the attempt ends because no task could be launched, for a transient reason."""
        if not self.launch_error or self.row.sub_state != PREPARING or self.stop_requested:
            return False
        ended = [task for task in self.tasks.values() if task.ended]
        return bool(ended) and all(
            task.exit_code == NOT_LAUNCHED and not task.stop_requested for task in ended
        )

    def owner(self) -> AllocationOwner:
        return AllocationOwner(self.row.vc, self.row.username, self.preemptible)

    def request(self) -> SchedulingRequest:
        return request_of(self.job, self.row.username, self.minimum)

    def resources_of(self, role: str) -> Resources:
        """What a task of this role holds."""
        requested = next(task_role.resources for task_role in self.job.task_roles if task_role.name == role)
        return Resources(requested.cpu, requested.memory_mb, requested.gpu).at_least(self.minimum)

    def pending_job(self) -> PendingJob:
        row = self.row
        return PendingJob(row.id, row.vc, row.username, row.priority, encode(self.request()))

    def queued_job(self) -> QueuedJob:
        row = self.row
        priority_class = priority_class_of(row.priority)
        return QueuedJob(row.id, row.vc, row.username, priority_class, self.request().resources)

    def retry_counts(self) -> RetryCounts:
        return RetryCounts(self.row.retries, self.row.retries_user, self.row.platform_streak)

    def outcomes(self) -> list[TaskOutcome]:
        """Outcomes of the tasks that have finally ended."""
        return [
            TaskOutcome(task.role, task.task_index, task.exit_code or 0, task.completed_ms or 0)
            for task in self.tasks.values()
            if task.sub_state == COMPLETED
        ]

    def peers(self, launched: Container[str]) -> list[TaskRow]:
        """Tasks whose addresses the launched ones get: the gang; without one, all tasks placed now."""
        if self.job.gang:
            return list(self.tasks.values())
        return [task for uid, task in self.tasks.live.items() if task.node or uid in launched]

    def is_to_be_retried(self, ended: TaskRow) -> bool:
        """Whether a task that just ended is retried individually; never in a gang."""
        if self.job.gang:
            return False
        # A preempted task is retried when resources are free again; a stopped one is not.
        return ended.exit_code == PREEMPTED if ended.stop_requested else self._retry_of(ended).retry

    def _retry_of(self, task: TaskRow) -> RetryDecision:
        counts = RetryCounts(task.retries_total, task.retries_accountable, task.retries_total)
        return decide_retry(
            self.job.task_retry_policy(task.role),
            counts,
            task.exit_code or 0,
            made_progress=ran_long(task.launched_ms, task.completed_ms),
        )

    def retry_delay_s(self, task: TaskRow) -> float:
        """Delay before a task is retried, so that one that fails at once does not spin."""
        retried = task.sub_state == ATTEMPT_COMPLETED and not task.stop_requested
        return self._retry_of(task).delay_s if retried else 0.0

    def unstarted(self) -> tuple[tuple[int, ...], ...]:
        """Task indexes of each role that are to be started, or started again."""
        retried = [task for uid, task in self.tasks.to_repeat.items() if uid not in self.backing_off]
        if not retried:
            return tuple(tuple(self.tasks.unstarted[role.name]) for role in self.job.task_roles)
        return tuple(
            tuple(
                sorted(
                    [
                        *self.tasks.unstarted[role.name],
                        *(t.task_index for t in retried if t.role == role.name),
                    ]
                )
            )
            for role in self.job.task_roles
        )

    def forget_tasks(self) -> None:
        """Start over with no tasks: the next attempt has its own."""
        self.tasks = AttemptTasks(self.job.task_roles)
        self.launched.clear()
        self.to_relaunch.clear()


def placement_of(task: TaskRow) -> TaskPlacement:
    """Placement of a task, as far as it is known."""
    return TaskPlacement(
        task.role,
        task.task_index,
        task.ip or "",
        ports_of(task),
        task.uid,
        tuple(json.loads(task.gpus or "[]")),
        task.task_attempt,
    )


def ports_of(task: TaskRow) -> dict[str, tuple[int, ...]]:
    return {label: tuple(numbers) for label, numbers in json.loads(task.ports or "{}").items()}
