"""Serializer of a job's detail, built for speed: a job may have thousands of tasks, each with twenty fields.

Values that tasks share (roles, nodes, states, exit specs) are rendered once and cached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from openpaisdk.protocol.completion import (
    COMPLETE_DIAGNOSTICS,
    STOP_DIAGNOSTICS,
    STOPPED_BY_USER,
    STOPPED_TO_COMPLETE,
)
from openpaisdk.protocol.exit_codes import UNKNOWN_FAILURE, exit_spec
from openpaisdk.protocol.states import SubState, attempt_state, job_state
from paicluster.store.rows import AttemptRow, JobRow, TaskRow

# A task in this state has a finished attempt and will be retried.
_WILL_RETRY = SubState.ATTEMPT_COMPLETED.value
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_ports = msgspec.json.Decoder(dict[str, list[int]]).decode


class TaskColumns(NamedTuple):
    """Columns of `store.jobs.task_details_of`, in its order.

    Its rows stay plain tuples, read by `_TASK_INDEX` and `_ROLE` or unpacked whole: converting thousands of
    them would only cost time.
    """

    role_order: int
    task_index: int | str
    role: str
    uid: str | None
    attempt: int
    task_attempt: int
    task_uid: str | None
    sub_state: str
    node: str | None
    ip: str | None
    ports: str | None
    created_ms: int | None
    launched_ms: int | None
    completed_ms: int | None
    exit_code: int | None
    exit_info: str | None
    retries: int
    accountable_retries: int


_TASK_INDEX = TaskColumns._fields.index("task_index")
_ROLE = TaskColumns._fields.index("role")


def job_detail(
    row: JobRow,
    attempt: AttemptRow | None,
    tasks: Sequence[tuple[Any, ...]],
    tags: str,
    reason: str = "",
    *,
    instances: Mapping[str, int] | None = None,
) -> bytes:
    """The JobDetail. ``tasks`` are those of `store.jobs.task_details_of`, ``tags`` is a JSON array.

    ``reason`` is the degraded reason of the job. With ``instances``, the number of tasks of each role, tasks
    without an attempt are included.
    """
    head = _encode(
        {
            "debugId": row.debug_id,
            "name": row.name,
            "tags": msgspec.Raw(tags.encode()),
            "jobPriority": row.priority,
            **({"reason": reason} if reason else {}),
            "jobStatus": job_status(row, attempt),
        }
    )
    by_role: dict[str, dict[int, str]] = {role: {} for role in instances or ()}
    for task in tasks:
        by_role.setdefault(task[_ROLE], {})[task[_TASK_INDEX]] = _task(row.framework, task)
    if instances is not None and attempt is not None:
        for role, count in instances.items():
            by_role[role] = _add_unstarted(by_role[role], count, row.framework, role, attempt)
    # May be megabytes: joined once, not concatenated piece by piece.
    pieces = [head[:-1].decode(), ',"taskRoles":{']
    ends = ""
    for role, texts in by_role.items():
        name = _text(role)
        pieces.append(f'{ends}{name}:{{"taskRoleStatus":{{"name":{name}}},"taskStatuses":[')
        pieces.append(",".join(texts.values()))
        ends = "]},"
    pieces.append("]}}}" if by_role else "}}")
    return "".join(pieces).encode()


# Placeholder for a task index; a character that JSON never contains.
_INDEX_PLACEHOLDER = "\0"


def _add_unstarted(
    started: Mapping[int, str], count: int, framework: str, role: str, attempt: AttemptRow
) -> dict[int, str]:
    """All tasks of a role by index. Unstarted ones differ by their index only, so they are rendered once."""
    sub_state, code, exit_info = SubState.CREATION_PENDING.value, None, None
    if attempt.sub_state in (SubState.DELETING.value, SubState.COMPLETED.value):
        by_user = attempt.exit_code == STOPPED_BY_USER
        sub_state, code = attempt.sub_state, STOPPED_BY_USER if by_user else STOPPED_TO_COMPLETE
        exit_info = _encode(
            {"caughtException": STOP_DIAGNOSTICS if by_user else COMPLETE_DIAGNOSTICS}
        ).decode()
    unstarted = TaskColumns(
        role_order=0,
        task_index=_INDEX_PLACEHOLDER,
        role=role,
        uid=None,
        attempt=attempt.attempt,
        task_attempt=0,
        task_uid=None,
        sub_state=sub_state,
        node=None,
        ip=None,
        ports=None,
        created_ms=attempt.created_ms,
        launched_ms=None,
        completed_ms=attempt.completed_ms,
        exit_code=code,
        exit_info=exit_info,
        retries=0,
        accountable_retries=0,
    )
    template = _task(framework, unstarted).split(_INDEX_PLACEHOLDER)
    return {index: started.get(index) or str(index).join(template) for index in range(count)}


def task_status(row: JobRow, attempts: Sequence[TaskRow]) -> bytes:
    """All attempts of one task, newest first."""
    newest, oldest = attempts[0], attempts[-1]
    each = ",".join(f"{{{attempt_of(row.framework, task)}}}" for task in attempts)
    return _encode(
        {
            "username": row.username,
            "jobName": row.name,
            "jobAttemptId": newest.attempt,
            "taskRoleName": newest.role,
            "taskIndex": newest.task_index,
            "taskUid": newest.task_uid,
            "taskState": job_state(newest.sub_state, newest.exit_code),
            "retries": newest.retries_total,
            "accountableRetries": newest.retries_accountable,
            "createdTime": oldest.created_ms,
            "launchedTime": oldest.launched_ms,
            "completedTime": None if newest.sub_state == _WILL_RETRY else newest.completed_ms,
            "attempts": msgspec.Raw(f"[{each}]".encode()),
        }
    )


def job_status(row: JobRow, attempt: AttemptRow | None) -> dict[str, Any]:
    """The `jobStatus` of a detail: state of the job and of one attempt."""
    code = attempt.exit_code if attempt is not None else None
    finished = attempt is not None and attempt.completed_ms is not None
    status: dict[str, Any] = {
        "username": row.username,
        "state": row.state,
        "subState": row.sub_state,
        "executionType": row.execution_type,
        "retries": row.retries,
        "retryDetails": {"user": row.retries_user, "platform": row.retries_platform, "resource": 0},
        "retryDelayTime": None if row.retry_delay_s is None else math.ceil(row.retry_delay_s),
        "submissionTime": row.submission_ms,
        "createdTime": row.created_ms,
        "launchedTime": row.launched_ms if row.launched_ms is not None else row.completed_ms,
        "completedTime": row.completed_ms,
        "attemptId": attempt.attempt if attempt is not None else row.attempt,
        "attemptState": attempt_state(attempt.sub_state, code) if attempt is not None else "WAITING",
        "appId": row.framework,
        "appProgress": 1 if finished else 0,
        "appTrackingUrl": "",
        "appCreatedTime": attempt.created_ms if attempt is not None else None,
        "appLaunchedTime": None,
        "appCompletedTime": attempt.completed_ms if attempt is not None else None,
        "appExitCode": code,
        "appExitSpec": attempt_exit_spec(attempt),
        "appExitDiagnostics": attempt.diagnostics if attempt is not None else None,
        "appExitMessages": exit_messages(attempt),
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


_READ_LOG_END = "Read the end of the task's log."


def attempt_exit_spec(attempt: AttemptRow | None) -> dict[str, Any] | None:
    """The entry of the exit code table for an attempt, None before it has ended."""
    if attempt is None or attempt.exit_code is None:
        return None
    return _explained_spec(attempt.exit_code, attempt.runtime_exit)


def _explained_spec(code: int, exit_info: str | None) -> dict[str, Any]:
    """An entry of the exit code table; where the cause of a failure is known, that cause and its solution.

    Clients of OpenPAI show both.
    """
    spec = exit_spec(code).as_dict()
    # Of an unknown failure the exception is all that is known: better than that nothing is.
    has_cause = '"solution"' if code != UNKNOWN_FAILURE else '"caughtException"'
    if exit_info and has_cause in exit_info:
        info = _decode(exit_info)
        if info.get("exitCode") == code:
            spec |= {
                "reason": info["caughtException"],
                "solution": [info.get("solution") or _READ_LOG_END],
            }
    return spec


def exit_messages(attempt: AttemptRow | None) -> dict[str, Any] | None:
    """Exit messages of container, runtime and launcher for a finished attempt."""
    if attempt is None or attempt.completed_ms is None:
        return None
    # With the container's name, which OpenPAI has; the user's program always runs in the one named "app".
    runtime = {**_decode(attempt.runtime_exit), "name": "app"} if attempt.runtime_exit else None
    return {"container": None, "runtime": runtime, "launcher": attempt.diagnostics}


def attempt_of(framework: str, task: TaskRow) -> str:
    return _attempt(
        framework, task.task_index, task.role, task.uid, task.attempt, task.task_attempt,
        _attempt_state(task.sub_state, task.exit_code), task.node, task.ip, task.ports,
        _number(task.created_ms), _number(task.launched_ms), _number(task.completed_ms), task.exit_code,
        task.exit_info,
    )  # fmt: skip


def _task(framework: str, columns: tuple[Any, ...]) -> str:
    (
        _order, index, role, uid, attempt, task_attempt, task_uid, sub_state, node, ip, ports, created,
        launched, completed, exit_code, exit_info, retries, accountable,
    ) = columns  # fmt: skip
    created, completed = _number(created), _number(completed)
    task_completed = "null" if sub_state == _WILL_RETRY else completed
    task_launched = task_completed if launched is None else launched
    rest = _attempt(
        framework, index, role, uid, attempt, task_attempt, _attempt_state(sub_state, exit_code), node, ip,
        ports, created, _number(launched), completed, exit_code, exit_info,
    )  # fmt: skip
    return (
        f'{{"taskIndex":{index},"taskUid":{_quoted(task_uid)},'
        f'"taskState":"{_task_state(sub_state, exit_code)}","retries":{retries},'
        f'"accountableRetries":{accountable},"createdTime":{created},'
        f'"launchedTime":{task_launched},"completedTime":{task_completed},{rest}}}'
    )


def _attempt(
    framework: str, index: int, role: str, uid: str | None, attempt: int, task_attempt: int, state: str,
    node: str | None, ip: str | None, ports: str | None, created: int | str, launched: int | str,
    completed: int | str, exit_code: int | None, exit_info: str | None,
) -> str:  # fmt: skip
    """The fields that a task and an attempt of it share."""
    each = ",".join(
        [
            f'{_text(label)}:"{",".join(map(str, numbers))}"'
            for label, numbers in _ports(ports or "{}").items()
        ]
    )
    return (
        f'"containerId":{_quoted(uid)},"containerIp":{_text(ip)},"containerNodeName":{_text(node)},'
        f'"containerPorts":{{{each}}},"containerGpus":null,'
        f'"containerLog":"{_log_prefix(framework, attempt, role)}{index}/attempts/{task_attempt}/logs",'
        f'"containerExitCode":{_number(exit_code)},"containerExitSpec":{_exit_spec(exit_code, exit_info)},'
        f'{_exit_summary(exit_info)},"attemptId":{task_attempt},'
        f'"attemptState":"{state}","currentAttemptCreatedTime":{created},'
        f'"currentAttemptLaunchedTime":{launched},"currentAttemptCompletedTime":{completed}'
    )


def _quoted(uid: str | None) -> str:
    return "null" if uid is None else f'"{uid}"'


def _number(value: int | None) -> int | str:
    return "null" if value is None else value


@lru_cache(maxsize=4096)
def _text(value: str | None) -> str:
    return _encode(value).decode()


@lru_cache(maxsize=4096)
def _log_prefix(framework: str, attempt: int, role: str) -> str:
    return _text(f"/api/v2/jobs/{framework}/attempts/{attempt}/taskRoles/{role}/taskIndex/")[1:-1]


@lru_cache(maxsize=128)
def _exit_summary(exit_info: str | None) -> str:
    """Diagnostics and the program's own exit code, which may differ from the reported exit code."""
    info = _decode(exit_info) if exit_info else {}
    diagnostics, own = info.get("caughtException"), info.get("originUserExitCode")
    return f'"containerExitDiagnostics":{_encode(diagnostics).decode()},"originUserExitCode":{_number(own)}'


def _exit_spec(code: int | None, exit_info: str | None) -> str:
    is_explained = exit_info is not None and '"solution"' in exit_info
    return "null" if code is None else _encoded_spec(code, exit_info if is_explained else None)


@lru_cache(maxsize=512)
def _encoded_spec(code: int, exit_info: str | None) -> str:
    return _encode(_explained_spec(code, exit_info)).decode()


_task_state = lru_cache(maxsize=512)(job_state)
_attempt_state = lru_cache(maxsize=512)(attempt_state)


def port_lists(ports: str | None) -> dict[str, str]:
    """Ports as clients read them: the numbers of a label, separated by commas."""
    return {label: ",".join(map(str, numbers)) for label, numbers in _ports(ports or "{}").items()}
