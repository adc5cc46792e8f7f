"""Rows as OpenPAI's JSON shapes. Names and types here are what clients depend on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from openpaisdk.protocol.exitcodes import exit_spec
from openpaisdk.protocol.states import attempt_state
from paicluster.store.rows import AttemptRow, EventRow, JobRow, TaskRow


def job_detail(
    row: JobRow, attempt: AttemptRow | None, tasks: Sequence[TaskRow], tags: Sequence[str]
) -> dict[str, Any]:
    roles: dict[str, Any] = {}
    for task in tasks:
        role = roles.setdefault(task.role, {"taskRoleStatus": {"name": task.role}, "taskStatuses": []})
        role["taskStatuses"].append(task_detail(row, task))
    return {
        "debugId": row.debug_id,
        "name": row.name,
        "tags": list(tags),
        "jobPriority": row.priority,
        "jobStatus": _status(row, attempt),
        "taskRoles": roles,
    }


def _status(row: JobRow, attempt: AttemptRow | None) -> dict[str, Any]:
    code = attempt.exit_code if attempt is not None else None
    over = attempt is not None and attempt.completed_ms is not None
    runtime = json.loads(attempt.runtime_exit) if attempt is not None and attempt.runtime_exit else None
    messages = None
    if over and attempt is not None:
        messages = {"container": None, "runtime": runtime, "launcher": attempt.diagnostics}
    status: dict[str, Any] = {
        "username": row.username,
        "state": row.state,
        "subState": row.sub_state,
        "executionType": row.execution_type,
        "retries": row.retries,
        "retryDetails": {"user": row.retries_user, "platform": row.retries_platform, "resource": 0},
        "retryDelayTime": row.retry_delay_s,
        "submissionTime": row.submission_ms,
        "createdTime": row.created_ms,
        "launchedTime": row.launched_ms if row.launched_ms is not None else row.completed_ms,
        "completedTime": row.completed_ms,
        "attemptId": attempt.attempt if attempt is not None else row.attempt,
        "attemptState": attempt_state(attempt.sub_state, code) if attempt is not None else "WAITING",
        "appId": row.framework,
        "appProgress": 1 if over else 0,
        "appTrackingUrl": "",
        "appCreatedTime": attempt.created_ms if attempt is not None else None,
        "appLaunchedTime": None,
        "appCompletedTime": attempt.completed_ms if attempt is not None else None,
        "appExitCode": code,
        "appExitSpec": exit_spec(code).as_dict() if code is not None else None,
        "appExitDiagnostics": attempt.diagnostics if attempt is not None else None,
        "appExitMessages": messages,
        "appExitTriggerMessage": attempt.trigger_message if attempt is not None else None,
        "appExitTriggerTaskRoleName": attempt.trigger_role if attempt is not None else None,
        "appExitTriggerTaskIndex": attempt.trigger_index if attempt is not None else None,
        "appExitType": attempt.exit_type if attempt is not None else None,
        "virtualCluster": row.vc or "unknown",
    }
    if attempt is not None:
        launched = attempt.launched_ms
        status["appLaunchedTime"] = launched if launched is not None else attempt.completed_ms
    return status


def task_detail(row: JobRow, task: TaskRow) -> dict[str, Any]:
    return {
        "taskIndex": task.task_index,
        "taskUid": task.task_uid,
        "taskState": attempt_state(task.sub_state, task.exit_code),
        "retries": task.retries_total,
        "accountableRetries": task.retries_accountable,
        "createdTime": task.created_ms,
        "launchedTime": task.launched_ms if task.launched_ms is not None else task.completed_ms,
        "completedTime": task.completed_ms,
        **_attempt_detail(row, task),
    }


def task_status(row: JobRow, attempts: Sequence[TaskRow]) -> dict[str, Any]:
    """Every attempt of one task, newest first."""
    newest, oldest = attempts[0], attempts[-1]
    return {
        "username": row.username,
        "jobName": row.name,
        "jobAttemptId": newest.attempt,
        "taskRoleName": newest.role,
        "taskIndex": newest.task_index,
        "taskUid": newest.task_uid,
        "taskState": attempt_state(newest.sub_state, newest.exit_code),
        "retries": newest.retries_total,
        "accountableRetries": newest.retries_accountable,
        "createdTime": oldest.created_ms,
        "launchedTime": oldest.launched_ms,
        "completedTime": newest.completed_ms,
        "attempts": [_attempt_detail(row, task) for task in attempts],
    }


def _attempt_detail(row: JobRow, task: TaskRow) -> dict[str, Any]:
    ports = json.loads(task.ports or "{}")
    info = json.loads(task.exit_info) if task.exit_info else {}
    return {
        "containerId": task.uid,
        "containerIp": task.ip,
        "containerNodeName": task.node,
        "containerPorts": {label: ",".join(map(str, numbers)) for label, numbers in ports.items()},
        "containerGpus": None,
        "containerLog": log_path(row, task),
        "containerExitCode": task.exit_code,
        "containerExitSpec": exit_spec(task.exit_code).as_dict() if task.exit_code is not None else None,
        "containerExitDiagnostics": info.get("caughtException"),
        "attemptId": task.task_attempt,
        "attemptState": attempt_state(task.sub_state, task.exit_code),
        "currentAttemptCreatedTime": task.created_ms,
        "currentAttemptLaunchedTime": task.launched_ms,
        "currentAttemptCompletedTime": task.completed_ms,
    }


def log_path(row: JobRow, task: TaskRow) -> str:
    return (
        f"/api/v2/jobs/{row.framework}/attempts/{task.attempt}/taskRoles/{task.role}"
        f"/taskIndex/{task.task_index}/attempts/{task.task_attempt}/logs"
    )


def event(row: JobRow, event: EventRow) -> dict[str, Any]:
    name = None
    if event.task_role is not None:
        name = f"{row.debug_id}-{event.task_role}-{event.task_index}"
    return {
        "uid": event.uid,
        "frameworkName": row.debug_id,
        "podUid": None,
        "taskroleName": event.task_role,
        "taskName": name,
        "taskIndex": event.task_index,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "firstTimestamp": _iso(event.first_ms),
        "lastTimestamp": _iso(event.last_ms),
        "count": event.count,
        "sourceComponent": event.source,
        "sourceHost": None,
    }


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
