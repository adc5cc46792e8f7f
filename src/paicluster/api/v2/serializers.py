"""Events and legacy attempts of jobs from database rows. Clients depend on the values here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from paicluster.api.v2.job_detail import attempt_exit_spec, exit_messages, log_path
from paicluster.api.wire.jobs import (
    AttemptRole,
    AttemptTask,
    ExitDiagnostics,
    JobAttempt,
    JobEvent,
    TaskRoleStatus,
)
from paicluster.store.rows import AttemptRow, EventRow, JobRow, TaskRow
from paiprotocol.jobs.states import attempt_state, job_state


def event(row: JobRow, event: EventRow) -> JobEvent:
    """An event. In OpenPAI it always has a pod; ours may be about the whole job, and then names no task."""
    name = row.debug_id
    if event.task_role is not None:
        name = f"{row.debug_id}-{event.task_role}-{event.task_index}"
    return JobEvent(
        uid=event.uid,
        framework_name=row.debug_id,
        pod_uid="",
        taskrole_name=event.task_role or "",
        task_name=name,
        task_index=event.task_index or 0,
        type=event.type,
        reason=event.reason,
        message=event.message,
        first_timestamp=iso(event.first_ms),
        last_timestamp=iso(event.last_ms),
        count=event.count,
        source_component=event.source,
        source_host=None,
        pending=event.pending,
    )


def job_attempt(row: JobRow, attempt: AttemptRow | None, tasks: Sequence[TaskRow]) -> JobAttempt:
    """An attempt in OpenPAI's legacy format."""
    number = row.attempt if attempt is None else attempt.attempt
    spec, messages = attempt_exit_spec(attempt), exit_messages(attempt)
    diagnostics = None if attempt is None else attempt.diagnostics
    return JobAttempt(
        job_name=row.name,
        framework_name=row.debug_id,
        uid=f"{row.debug_id}-{number}",
        user_name=row.username,
        state=row.state if attempt is None else attempt_state(attempt.sub_state, attempt.exit_code),
        origin_state=row.sub_state if attempt is None else attempt.sub_state,
        attempt_index=number,
        job_started_time=row.created_ms,
        attempt_started_time=None if attempt is None else attempt.created_ms,
        attempt_completed_time=None if attempt is None else attempt.completed_ms,
        exit_code=None if attempt is None else attempt.exit_code,
        exit_phrase=None if spec is None else spec.phrase,
        exit_type=None if attempt is None else attempt.exit_type,
        exit_diagnostics=None
        if messages is None
        else ExitDiagnostics(diagnostics or "", messages.runtime, diagnostics or ""),
        app_exit_trigger_message=None if attempt is None else attempt.trigger_message,
        app_exit_trigger_task_role_name=None if attempt is None else attempt.trigger_role,
        app_exit_trigger_task_index=None if attempt is None else attempt.trigger_index,
        app_exit_spec=spec,
        app_exit_diagnostics=diagnostics,
        app_exit_messages=messages,
        total_gpu_number=row.total_gpus,
        total_task_number=row.total_tasks,
        total_task_role_number=row.total_roles,
        job_priority=row.priority,
        task_roles=_attempt_roles(row, tasks),
        is_latest=number == row.attempt,
    )


def _attempt_roles(row: JobRow, tasks: Sequence[TaskRow]) -> dict[str, AttemptRole]:
    roles: dict[str, AttemptRole] = {}
    for task in tasks:
        role = roles.setdefault(task.role, AttemptRole(TaskRoleStatus(task.role), []))
        role.task_statuses.append(
            AttemptTask(
                task_index=task.task_index,
                task_state=job_state(task.sub_state, task.exit_code),
                container_id=task.uid,
                container_ip=task.ip or "",
                container_gpus=None,
                container_log=log_path(row.framework, task),
                container_exit_code=task.exit_code,
            )
        )
    return roles


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
