"""What the controller keeps in hand of a job that is not over. A copy: the truth is in the database."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from openpaisdk.protocol import Job
from openpaisdk.protocol.retries import RetryCounts
from paicluster.scheduler.firstcome import JobNeed, RoleNeed
from paicluster.store.rows import AttemptRow, JobRow, TaskRow

PENDING = "AttemptCreationPending"
PREPARING = "AttemptPreparing"
RUNNING = "AttemptRunning"
DELETING = "AttemptDeleting"
ATTEMPT_COMPLETED = "AttemptCompleted"
COMPLETED = "Completed"


@dataclass(slots=True)
class Record:
    row: JobRow
    job: Job
    sealed: bytes | None
    attempt: AttemptRow | None = None
    # The tasks of the current attempt by uid.
    tasks: dict[str, TaskRow] = field(default_factory=dict)
    waiting_reason: str = ""
    launching: asyncio.Task[None] | None = None

    @property
    def stop_wanted(self) -> bool:
        return self.row.execution_type == "STOP"

    @property
    def live(self) -> list[TaskRow]:
        return [task for task in self.tasks.values() if task.sub_state != COMPLETED]

    def need(self) -> JobNeed:
        return JobNeed(
            self.row.id,
            tuple(
                RoleNeed(role.name, role.instances, r.cpu, r.memory_mb, r.gpu)
                for role in self.job.task_roles
                for r in (role.resources,)
            ),
        )

    def retry_counts(self) -> RetryCounts:
        return RetryCounts(self.row.retries, self.row.retries_user, self.row.platform_streak)
