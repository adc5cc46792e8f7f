"""What one pass wants written, and what it will do once that is on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from paicluster.store import jobs
from paicluster.store.rows import AttemptRow, TaskRow
from paicluster.store.writer import touch_tokens


@dataclass(frozen=True, slots=True)
class Event:
    job_id: int
    type: str
    reason: str
    message: str
    source: str = "paicluster"


@dataclass(slots=True)
class Changes:
    job_columns: dict[int, dict[str, Any]] = field(default_factory=dict)
    new_tasks: list[TaskRow] = field(default_factory=list)
    task_columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    attempts: dict[tuple[int, int], AttemptRow] = field(default_factory=dict)
    # Jobs and the attempt of each whose tasks are not to be remembered, the earlier tries among them.
    forgotten: dict[int, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    # How jobs end that end with this, by full name.
    ended: dict[str, str] = field(default_factory=dict)
    # Tokens of attempts that are over.
    ended_tokens: list[str] = field(default_factory=list)
    # Done after the commit: jobs to launch, and tasks to stop.
    launch: list[int] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.job_columns or self.new_tasks or self.task_columns or self.attempts or self.events)

    def write(self, conn: Connection, now_ms: int) -> list[str]:
        """Write all of it; which tasks are forgotten."""
        forgotten: list[str] = []
        if self.new_tasks:
            jobs.insert_tasks(conn, self.new_tasks)
        if self.task_columns:
            jobs.update_tasks(conn, list(self.task_columns.values()))
        for job_id, attempt in self.forgotten.items():
            forgotten += jobs.forget_tasks(conn, job_id, attempt)
        for row in self.attempts.values():
            jobs.upsert_attempt(conn, row)
        for job_id, columns in self.job_columns.items():
            jobs.update_job(conn, job_id, **columns)
        for event in self.events:
            jobs.add_event(
                conn,
                event.job_id,
                type=event.type,
                reason=event.reason,
                message=event.message,
                now_ms=now_ms,
                source=event.source,
            )
        if self.ended_tokens:
            touch_tokens(conn, self.ended_tokens)
        return forgotten
