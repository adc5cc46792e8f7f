"""Changes of one reconcile: what to write, and what to do once that is committed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from paicluster.store import jobs
from paicluster.store.rows import AttemptRow, TaskRow
from paicluster.store.writer import job_token_id, touch_tokens


@dataclass(frozen=True, slots=True)
class Event:
    job_id: int
    type: str
    reason: str
    message: str
    source: str = "paicluster"
    # Whether it tells why the job is pending.
    pending: bool = False


@dataclass(slots=True)
class Changes:
    job_columns: dict[int, dict[str, Any]] = field(default_factory=dict)
    new_tasks: list[TaskRow] = field(default_factory=list)
    task_columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    attempts: dict[tuple[int, int], AttemptRow] = field(default_factory=dict)
    # Attempts by job whose task rows are deleted, earlier task attempts included.
    forgotten: dict[int, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    # Final states of jobs that finish with this, by full name.
    ended: dict[str, str] = field(default_factory=dict)
    # Why those of them failed that did, by full name.
    causes: dict[str, str] = field(default_factory=dict)
    # Finished attempts, by job and number: their tokens are no longer valid.
    ended_attempts: list[tuple[int, int]] = field(default_factory=list)
    # Done after the commit: jobs to launch and tasks to stop.
    launch: list[int] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.job_columns or self.new_tasks or self.task_columns or self.attempts or self.events)

    def write(self, conn: Connection, now_ms: int) -> list[str]:
        """Write everything; the uids of the deleted task rows."""
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
                pending=event.pending,
            )
        if self.ended_attempts:
            touch_tokens(conn, [job_token_id(*attempt) for attempt in self.ended_attempts])
        return forgotten

    def split_by_job(self, job_of: Mapping[str, int]) -> dict[int, Changes]:
        """The same changes, one set per job."""
        parts: defaultdict[int, Changes] = defaultdict(Changes)
        for job_id, columns in self.job_columns.items():
            parts[job_id].job_columns[job_id] = columns
        for task in self.new_tasks:
            parts[task.job_id].new_tasks.append(task)
        for uid, columns in self.task_columns.items():
            parts[columns["job_id"]].task_columns[uid] = columns
        for key, row in self.attempts.items():
            parts[row.job_id].attempts[key] = row
        for job_id, attempt in self.forgotten.items():
            parts[job_id].forgotten[job_id] = attempt
        for event in self.events:
            parts[event.job_id].events.append(event)
        for ended in self.ended_attempts:
            parts[ended[0]].ended_attempts.append(ended)
        for job_id in self.launch:
            parts[job_id].launch.append(job_id)
        for uid in self.stop:
            parts[job_of[uid]].stop.append(uid)
        return parts
