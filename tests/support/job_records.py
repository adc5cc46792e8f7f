"""Records of jobs for tests of the controller's transitions: no database, no engine."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

from paicluster.controller.job_record import PENDING, PREPARING, RUNNING, JobRecord
from paicluster.store.rows import AttemptRow, JobRow, TaskRow
from paiprotocol.jobs import JobSpec, read_job
from support.server_fixture import job as job_of

ROW = JobRow(
    id=1,
    framework="ada~work",
    username="ada",
    name="work",
    debug_id="work",
    vc="default",
    priority=None,
    state="RUNNING",
    sub_state=RUNNING,
    execution_type="START",
    retries=0,
    retries_user=0,
    retries_platform=0,
    platform_streak=0,
    retry_delay_s=None,
    retry_at_ms=None,
    submission_ms=0,
    created_ms=0,
    launched_ms=0,
    completed_ms=None,
    exit_code=None,
    total_gpus=0,
    total_tasks=1,
    total_roles=1,
    attempt=0,
    generation="v2",
)


@cache
def _spec(text: str) -> JobSpec:
    return read_job(text)


def job_record(text: dict[str, Any], **columns: Any) -> JobRecord:
    """A record of this job; ``columns`` of its row."""
    row = replace(ROW, **columns)
    record = JobRecord(row, _spec(json.dumps(text)), None)
    if row.sub_state != PENDING:
        record.attempt = AttemptRow(row.id, row.attempt, row.sub_state, launched_ms=row.launched_ms)
    return record


def add_task(record: JobRecord, index: int = 0, role: str = "main", **columns: Any) -> TaskRow:
    """Add a running task of the current attempt."""
    uid = f"{role}-{index}"
    fields: dict[str, Any] = {
        "uid": uid,
        "job_id": record.row.id,
        "attempt": record.row.attempt,
        "role": role,
        "role_order": 0,
        "task_index": index,
        "task_attempt": 0,
        "task_uid": uid,
        "sub_state": PREPARING if record.row.sub_state == PREPARING else RUNNING,
        "node": "here",
        "ip": "127.0.0.1",
        "ports": "{}",
        "gpus": "[]",
        "launched_ms": 0,
    }
    task = TaskRow(**{**fields, **columns})
    record.tasks[task.uid] = task
    return task


def gang(*, tasks: int = 1, retries: int = 0, **columns: Any) -> JobRecord:
    """A running gang; its tasks are running, too."""
    record = job_record(job_of("work", "true", instances=tasks, jobRetryCount=retries), **columns)
    if record.row.sub_state in (RUNNING, PREPARING):
        for index in range(tasks):
            add_task(record, index)
    return record


def array(*, tasks: int = 1, task_retries: int = 0, **columns: Any) -> JobRecord:
    """A running job without a gang; none of its tasks has been placed."""
    text = job_of("work", "true", instances=tasks, extras={"gangAllocation": False})
    text["taskRoles"]["main"]["taskRetryCount"] = task_retries
    return job_record(text, **columns)


__all__ = ["ROW", "add_task", "array", "gang", "job_record"]
