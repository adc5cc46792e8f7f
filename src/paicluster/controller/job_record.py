"""What the controller keeps in hand of a job that has started, or is about to. The database has the truth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Container
from dataclasses import dataclass, field

from openpaisdk.protocol import JobSpec
from openpaisdk.protocol.completion import TaskOutcome
from openpaisdk.protocol.retries import RetryCounts, RetryDecision, decide_retry
from openpaisdk.protocol.task_environment import TaskPlacement
from paicluster.controller.allocations import AllocationOwner
from paicluster.controller.attempt_tasks import ATTEMPT_COMPLETED as ATTEMPT_COMPLETED
from paicluster.controller.attempt_tasks import COMPLETED as COMPLETED
from paicluster.controller.attempt_tasks import AttemptTasks
from paicluster.controller.exit_classification import NOT_LAUNCHED, PREEMPTED
from paicluster.controller.pending_queue import level_of
from paicluster.scheduler.pending_jobs import QueuedJob
from paicluster.scheduler.plan import OPPORTUNISTIC
from paicluster.scheduler.resource_requests import SchedulingRequest, encode, request_of
from paicluster.store.rows import AttemptRow, JobRow, PendingJob, TaskRow

PENDING = "AttemptCreationPending"
PREPARING = "AttemptPreparing"
RUNNING = "AttemptRunning"
DELETING = "AttemptDeleting"


@dataclass(slots=True)
class JobRecord:
    row: JobRow
    job: JobSpec
    sealed: bytes | None
    attempt: AttemptRow | None = None
    # The task attempts of the current attempt by uid; of each task the latest one.
    tasks: AttemptTasks = field(init=False)
    launching: asyncio.Task[None] | None = None
    # Whether the latest decision to start tasks of it got to disk; before that nothing of them may run.
    written: asyncio.Future[bool] | None = None
    # What the engine was told to launch; of that, what was found not to have begun, and is to be told again;
    # and how often that was so.
    launched: set[str] = field(default_factory=set)
    to_relaunch: set[str] = field(default_factory=set)
    relaunches: int = 0
    # Why the engine could launch nothing of it when it last tried, how often that was so, and whether the
    # next try is still to come. None of it is in the database: a new controller tries at once.
    launch_error: str = ""
    launch_failures: int = 0
    deferred: bool = False
    # Tasks that ended and are to be started again, but not at once.
    backing_off: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tasks = AttemptTasks(self.job.task_roles)

    @property
    def intent_committed(self) -> asyncio.Future[bool] | None:
        """`written`, for one who may be cancelled while he waits: others wait for it too."""
        return None if self.written is None else asyncio.shield(self.written)

    @property
    def stop_wanted(self) -> bool:
        return self.row.execution_type == "STOP"

    @property
    def live(self) -> list[TaskRow]:
        return list(self.tasks.live.values())

    @property
    def to_launch(self) -> list[str]:
        """Tasks of which the engine is yet to be told. Others are on their way, not seen to run yet."""
        return [
            uid
            for uid, task in self.tasks.live.items()
            if task.sub_state == PREPARING and uid not in self.launched
        ]

    def launch_again(self, uid: str) -> None:
        """A task did not begin, though the engine was told to; a gang is then launched together once more."""
        if uid in self.launched:
            again = [t.uid for t in self.live if t.sub_state == PREPARING] if self.job.gang else [uid]
            self.launched.difference_update(again)
            self.to_relaunch.update(again)

    @property
    def preemptible(self) -> bool:
        return level_of(self.row.priority) == OPPORTUNISTIC

    @property
    def preempting(self) -> bool:
        """Whether it was told to give way: its tasks are to stop, and nothing was decided about it."""
        return self.row.exit_code is None and any(task.stop_requested for task in self.live)

    @property
    def unlaunched(self) -> bool:
        """Whether the attempt ends because nothing of it could be launched, for a reason that may pass."""
        if not self.launch_error or self.row.sub_state != PREPARING or self.stop_wanted:
            return False
        ended = [task for task in self.tasks.values() if task.over]
        return bool(ended) and all(
            task.exit_code == NOT_LAUNCHED and not task.stop_requested for task in ended
        )

    def holder(self) -> AllocationOwner:
        return AllocationOwner(self.row.vc, self.row.username, self.preemptible)

    def request(self) -> SchedulingRequest:
        return request_of(self.job, self.row.username)

    def pending_job(self) -> PendingJob:
        row = self.row
        return PendingJob(row.id, row.vc, row.username, row.priority, encode(self.request()))

    def waiting_job(self) -> QueuedJob:
        return QueuedJob(
            self.row.id, self.row.vc, self.row.username, level_of(self.row.priority), self.request().need
        )

    def retry_counts(self) -> RetryCounts:
        return RetryCounts(self.row.retries, self.row.retries_user, self.row.platform_streak)

    def outcomes(self) -> list[TaskOutcome]:
        """How the tasks ended that ended for good."""
        return [
            TaskOutcome(task.role, task.task_index, task.exit_code or 0, task.completed_ms or 0)
            for task in self.tasks.values()
            if task.sub_state == COMPLETED
        ]

    def peers(self, launched: Container[str]) -> list[TaskRow]:
        """Whom tasks that are launched now can meet: their gang; without one, whoever has a place now."""
        if self.job.gang:
            return list(self.tasks.values())
        return [task for uid, task in self.tasks.live.items() if task.node or uid in launched]

    def is_to_be_retried(self, ended: TaskRow) -> bool:
        """Whether a task that just ended is started again by itself; never in a gang."""
        if self.job.gang:
            return False
        # One that gave way goes on when there is room again; one that was stopped is over.
        return ended.exit_code == PREEMPTED if ended.stop_requested else self._retry_of(ended).retry

    def _retry_of(self, task: TaskRow) -> RetryDecision:
        counts = RetryCounts(task.retries_total, task.retries_accountable, task.retries_total)
        return decide_retry(self.job.task_retry_policy(task.role), counts, task.exit_code or 0)

    def pause_before_retry(self, task: TaskRow) -> float:
        """How long a task that is started again rests before that: one that fails at once must not spin."""
        again = task.sub_state == ATTEMPT_COMPLETED and not task.stop_requested
        return self._retry_of(task).delay_s if again else 0.0

    def unstarted(self) -> tuple[tuple[int, ...], ...]:
        """Which tasks of each role are still to be started, or started again."""
        again = [task for uid, task in self.tasks.to_repeat.items() if uid not in self.backing_off]
        if not again:
            return tuple(tuple(self.tasks.unstarted[role.name]) for role in self.job.task_roles)
        return tuple(
            tuple(
                sorted(
                    [*self.tasks.unstarted[role.name], *(t.task_index for t in again if t.role == role.name)]
                )
            )
            for role in self.job.task_roles
        )

    def forget_tasks(self) -> None:
        """What comes next has tasks of its own."""
        self.tasks = AttemptTasks(self.job.task_roles)
        self.launched.clear()
        self.to_relaunch.clear()


def place_of(task: TaskRow) -> TaskPlacement:
    """Where a task is, as far as that is known."""
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
