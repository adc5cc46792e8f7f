"""Database rows as OpenPAI's JSON. Clients depend on the names and types here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from openpaisdk.protocol.states import attempt_state, job_state
from paicluster.api.v2.job_detail import attempt_exit_spec, exit_messages
from paicluster.store.rows import AttemptRow, EventRow, JobRow, TaskRow


def log_path(row: JobRow, task: TaskRow) -> str:
    return (
        f"/api/v2/jobs/{row.framework}/attempts/{task.attempt}/taskRoles/{task.role}"
        f"/taskIndex/{task.task_index}/attempts/{task.task_attempt}/logs"
    )


def event(row: JobRow, event: EventRow) -> dict[str, Any]:
    """An Event. In OpenPAI it always has a pod; ours may be about the whole job, and then names no task."""
    name = row.debug_id
    if event.task_role is not None:
        name = f"{row.debug_id}-{event.task_role}-{event.task_index}"
    return {
        "uid": event.uid,
        "frameworkName": row.debug_id,
        "podUid": "",
        "taskroleName": event.task_role or "",
        "taskName": name,
        "taskIndex": event.task_index or 0,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "firstTimestamp": iso(event.first_ms),
        "lastTimestamp": iso(event.last_ms),
        "count": event.count,
        "sourceComponent": event.source,
        "sourceHost": None,
        # Our addition: whether it tells why the job is pending.
        "pending": event.pending,
    }


def job_attempt(row: JobRow, attempt: AttemptRow | None, tasks: Sequence[TaskRow]) -> dict[str, Any]:
    """A JobAttempt, OpenPAI's legacy format of an attempt."""
    number = row.attempt if attempt is None else attempt.attempt
    code = None if attempt is None else attempt.exit_code
    spec = attempt_exit_spec(attempt)
    diagnostics = None if attempt is None else attempt.diagnostics
    messages = exit_messages(attempt)
    roles: dict[str, Any] = {}
    for task in tasks:
        role = roles.setdefault(task.role, {"taskRoleStatus": {"name": task.role}, "taskStatuses": []})
        role["taskStatuses"].append(
            {
                "taskIndex": task.task_index,
                "taskState": job_state(task.sub_state, task.exit_code),
                "containerId": task.uid,
                "containerIp": task.ip or "",
                "containerGpus": None,
                "containerLog": log_path(row, task),
                "containerExitCode": task.exit_code,
            }
        )
    return {
        "jobName": row.name,
        "frameworkName": row.debug_id,
        "uid": f"{row.debug_id}-{number}",
        "userName": row.username,
        "state": row.state if attempt is None else attempt_state(attempt.sub_state, code),
        "originState": row.sub_state if attempt is None else attempt.sub_state,
        "attemptIndex": number,
        "jobStartedTime": row.created_ms,
        "attemptStartedTime": None if attempt is None else attempt.created_ms,
        "attemptCompletedTime": None if attempt is None else attempt.completed_ms,
        "exitCode": code,
        "exitPhrase": None if spec is None else spec["phrase"],
        "exitType": None if attempt is None else attempt.exit_type,
        "exitDiagnostics": None
        if messages is None
        else {
            "diagnosticsSummary": diagnostics or "",
            "runtime": messages["runtime"],
            "launcher": diagnostics or "",
        },
        "appExitTriggerMessage": None if attempt is None else attempt.trigger_message,
        "appExitTriggerTaskRoleName": None if attempt is None else attempt.trigger_role,
        "appExitTriggerTaskIndex": None if attempt is None else attempt.trigger_index,
        "appExitSpec": spec,
        "appExitDiagnostics": diagnostics,
        "appExitMessages": messages,
        "totalGpuNumber": row.total_gpus,
        "totalTaskNumber": row.total_tasks,
        "totalTaskRoleNumber": row.total_roles,
        "jobPriority": row.priority,
        "taskRoles": roles,
        "isLatest": number == row.attempt,
    }


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
