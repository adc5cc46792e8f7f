"""Job details from database rows.

A job may have thousands of tasks, each with twenty fields: what tasks share (states, exit specs, paths of
logs) is made once and cached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from paicluster.api.wire.jobs import (
    ExitMessages,
    ExitSpec,
    JobDetail,
    JobStatus,
    RetryDetails,
    RuntimeExit,
    TaskAttempt,
    TaskDetail,
    TaskRole,
    TaskRoleStatus,
    TaskStatus,
)
from paicluster.store.job_failures import TaskEnd, cause_of, task_end
from paicluster.store.rows import AttemptRow, JobRow, TaskRow, decode_tags
from paiprotocol.jobs.completion import (
    COMPLETE_DIAGNOSTICS,
    STOP_DIAGNOSTICS,
    STOPPED_BY_USER,
    STOPPED_TO_COMPLETE,
)
from paiprotocol.jobs.exit_codes import UNKNOWN_FAILURE, exit_spec
from paiprotocol.jobs.states import SubState, attempt_state, job_state

# A task in this state has a finished attempt and will be retried.
_WILL_RETRY = SubState.ATTEMPT_COMPLETED.value
_READ_LOG_END = "Read the end of the task's log."
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_ports = msgspec.json.Decoder(dict[str, list[int]]).decode


class TaskColumns(NamedTuple):
    """Columns of `store.jobs.task_details_of`, in its order.

    Its rows stay plain tuples, read by `_TASK_INDEX` and `_ROLE` or unpacked whole: converting thousands of
    them would only cost time.
    """

    role_order: int
    task_index: int
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
    reason: str = "",
    *,
    instances: Mapping[str, int] | None = None,
) -> JobDetail:
    """``tasks`` are those of `store.jobs.task_details_of`.

    ``reason`` is the degraded or the pending reason of the job. A failed attempt has the cause that lists
    show. With ``instances``, the number of tasks of each role, tasks without an attempt are included.
    """
    status = job_status(row, attempt)
    cause = cause_of(attempt) if status.attempt_state == "FAILED" else ""
    by_role: dict[str, dict[int, TaskDetail]] = {role: {} for role in instances or ()}
    for task in tasks:
        by_role.setdefault(task[_ROLE], {})[task[_TASK_INDEX]] = _task(row.framework, task)
    if instances is not None and attempt is not None:
        for role, count in instances.items():
            by_role[role] = _add_unstarted(by_role[role], count, row.framework, role, attempt)
    return JobDetail(
        debug_id=row.debug_id,
        name=row.name,
        tags=decode_tags(row.tags),
        job_priority=row.priority,
        reason=reason or UNSET,
        cause=cause or UNSET,
        job_status=status,
        task_roles={
            role: TaskRole(TaskRoleStatus(role), list(details.values())) for role, details in by_role.items()
        },
    )


def _add_unstarted(
    started: Mapping[int, TaskDetail], count: int, framework: str, role: str, attempt: AttemptRow
) -> dict[int, TaskDetail]:
    """All tasks of a role by index. Those that have not started differ only in their index."""
    sub_state, code, exit_info = SubState.CREATION_PENDING.value, None, None
    if attempt.sub_state in (SubState.DELETING.value, SubState.COMPLETED.value):
        by_user = attempt.exit_code == STOPPED_BY_USER
        sub_state, code = attempt.sub_state, STOPPED_BY_USER if by_user else STOPPED_TO_COMPLETE
        exit_info = _encode(
            {"caughtException": STOP_DIAGNOSTICS if by_user else COMPLETE_DIAGNOSTICS}
        ).decode()
    columns = TaskColumns(
        role_order=0,
        task_index=0,
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
    unstarted, prefix = _task(framework, columns), _log_prefix(framework, attempt.attempt, role)
    return {
        index: started.get(index)
        or msgspec.structs.replace(
            unstarted, task_index=index, container_log=f"{prefix}{index}/attempts/0/logs"
        )
        for index in range(count)
    }


def task_status(row: JobRow, attempts: Sequence[TaskRow]) -> TaskStatus:
    """All attempts of one task, newest first."""
    newest, oldest = attempts[0], attempts[-1]
    return TaskStatus(
        username=row.username,
        job_name=row.name,
        job_attempt_id=newest.attempt,
        task_role_name=newest.role,
        task_index=newest.task_index,
        task_uid=newest.task_uid,
        task_state=job_state(newest.sub_state, newest.exit_code),
        retries=newest.retries_total,
        accountable_retries=newest.retries_accountable,
        created_time=oldest.created_ms,
        launched_time=oldest.launched_ms,
        completed_time=None if newest.sub_state == _WILL_RETRY else newest.completed_ms,
        attempts=[task_attempt(row.framework, task) for task in attempts],
    )


def job_status(row: JobRow, attempt: AttemptRow | None) -> JobStatus:
    """State of the job and of one attempt. A job that never ran counts as launched when it ended, as in
    OpenPAI; so does an attempt.
    """
    status = JobStatus(
        username=row.username,
        state=row.state,
        sub_state=row.sub_state,
        execution_type=row.execution_type,
        retries=row.retries,
        retry_details=RetryDetails(row.retries_user, row.retries_platform, resource=0),
        retry_delay_time=None if row.retry_delay_s is None else math.ceil(row.retry_delay_s),
        submission_time=row.submission_ms,
        created_time=row.created_ms,
        launched_time=row.completed_ms if row.launched_ms is None else row.launched_ms,
        completed_time=row.completed_ms,
        attempt_id=row.attempt,
        attempt_state="WAITING",
        app_id=row.framework,
        app_progress=0,
        app_tracking_url="",
        app_created_time=None,
        app_launched_time=None,
        app_completed_time=None,
        app_exit_code=None,
        app_exit_spec=None,
        app_exit_diagnostics=None,
        app_exit_messages=None,
        app_exit_trigger_message=None,
        app_exit_trigger_task_role_name=None,
        app_exit_trigger_task_index=None,
        app_exit_type=None,
        virtual_cluster=row.vc or "unknown",
    )
    if attempt is None:
        return status
    return msgspec.structs.replace(
        status,
        attempt_id=attempt.attempt,
        attempt_state=attempt_state(attempt.sub_state, attempt.exit_code),
        app_progress=0 if attempt.completed_ms is None else 1,
        app_created_time=attempt.created_ms,
        app_launched_time=attempt.completed_ms if attempt.launched_ms is None else attempt.launched_ms,
        app_completed_time=attempt.completed_ms,
        app_exit_code=attempt.exit_code,
        app_exit_spec=attempt_exit_spec(attempt),
        app_exit_diagnostics=attempt.diagnostics,
        app_exit_messages=exit_messages(attempt),
        app_exit_trigger_message=attempt.trigger_message,
        app_exit_trigger_task_role_name=attempt.trigger_role,
        app_exit_trigger_task_index=attempt.trigger_index,
        app_exit_type=attempt.exit_type,
    )


def attempt_exit_spec(attempt: AttemptRow | None) -> ExitSpec | None:
    """The entry of the exit code table for an attempt, None before it has ended."""
    if attempt is None or attempt.exit_code is None:
        return None
    return _explained_spec(attempt.exit_code, attempt.runtime_exit)


def _explained_spec(code: int, exit_info: str | None) -> ExitSpec:
    """An entry of the exit code table; where the cause of a failure is known, that cause and its solution.

    Clients of OpenPAI show both.
    """
    spec = _spec(code)
    # Of an unknown failure the exception is all that is known: better than that nothing is.
    has_cause = '"solution"' if code != UNKNOWN_FAILURE else '"caughtException"'
    if exit_info and has_cause in exit_info:
        info = _decode(exit_info)
        if info.get("exitCode") == code:
            solution = [info.get("solution") or _READ_LOG_END]
            return msgspec.structs.replace(spec, reason=info["caughtException"], solution=solution)
    return spec


@lru_cache(maxsize=128)
def _spec(code: int) -> ExitSpec:
    spec = exit_spec(code)
    return ExitSpec(
        code=spec.code,
        phrase=spec.phrase,
        issuer=spec.issuer,
        causer=spec.causer,
        type=spec.type,
        stage=spec.stage,
        behavior=spec.behavior,
        reaction=spec.reaction,
        reason=UNSET if spec.reason is None else spec.reason,
        repro=list(spec.repro),
        solution=list(spec.solution),
    )


def exit_messages(attempt: AttemptRow | None) -> ExitMessages | None:
    """Exit messages of container, runtime and launcher for a finished attempt."""
    if attempt is None or attempt.completed_ms is None:
        return None
    runtime = None
    if attempt.runtime_exit:
        # OpenPAI names the container; the user's program always runs in the one named "app".
        runtime = msgspec.convert({**_decode(attempt.runtime_exit), "name": "app"}, RuntimeExit)
    return ExitMessages(container=None, runtime=runtime, launcher=attempt.diagnostics)


def task_attempt(framework: str, task: TaskRow) -> TaskAttempt:
    end, state = end_of_task(task.exit_info), _attempt_state(task.sub_state, task.exit_code)
    return TaskAttempt(
        container_id=task.uid,
        container_ip=task.ip,
        container_node_name=task.node,
        container_ports=port_lists(task.ports),
        container_gpus=None,
        container_log=log_path(framework, task),
        container_exit_code=task.exit_code,
        container_exit_spec=_exit_spec(task.exit_code, task.exit_info),
        container_exit_diagnostics=end.diagnostics,
        origin_user_exit_code=end.own_code,
        cause=cause_if_failed(state, end),
        attempt_id=task.task_attempt,
        attempt_state=state,
        current_attempt_created_time=task.created_ms,
        current_attempt_launched_time=task.launched_ms,
        current_attempt_completed_time=task.completed_ms,
    )


def _task(framework: str, columns: tuple[Any, ...]) -> TaskDetail:
    (
        _order, index, role, uid, attempt, task_attempt, task_uid, sub_state, node, ip, ports, created,
        launched, completed, exit_code, exit_info, retries, accountable,
    ) = columns  # fmt: skip
    task_completed = None if sub_state == _WILL_RETRY else completed
    end, state = end_of_task(exit_info), _attempt_state(sub_state, exit_code)
    return TaskDetail(
        task_index=index,
        task_uid=task_uid,
        task_state=_task_state(sub_state, exit_code),
        retries=retries,
        accountable_retries=accountable,
        created_time=created,
        launched_time=task_completed if launched is None else launched,
        completed_time=task_completed,
        container_id=uid,
        container_ip=ip,
        container_node_name=node,
        container_ports=port_lists(ports),
        container_gpus=None,
        container_log=f"{_log_prefix(framework, attempt, role)}{index}/attempts/{task_attempt}/logs",
        container_exit_code=exit_code,
        container_exit_spec=_exit_spec(exit_code, exit_info),
        container_exit_diagnostics=end.diagnostics,
        origin_user_exit_code=end.own_code,
        cause=cause_if_failed(state, end),
        attempt_id=task_attempt,
        attempt_state=state,
        current_attempt_created_time=created,
        current_attempt_launched_time=launched,
        current_attempt_completed_time=completed,
    )


def log_path(framework: str, task: TaskRow) -> str:
    prefix = _log_prefix(framework, task.attempt, task.role)
    return f"{prefix}{task.task_index}/attempts/{task.task_attempt}/logs"


@lru_cache(maxsize=4096)
def _log_prefix(framework: str, attempt: int, role: str) -> str:
    return f"/api/v2/jobs/{framework}/attempts/{attempt}/taskRoles/{role}/taskIndex/"


end_of_task = lru_cache(maxsize=128)(task_end)


def cause_if_failed(state: str, end: TaskEnd) -> str | UnsetType:
    """Why a task or an attempt in this state failed; UNSET in other states, or where nothing is known."""
    return (state == "FAILED" and end.cause) or UNSET


def _exit_spec(code: int | None, exit_info: str | None) -> ExitSpec | None:
    if code is None:
        return None
    is_explained = exit_info is not None and '"solution"' in exit_info
    return _cached_spec(code, exit_info if is_explained else None)


_cached_spec = lru_cache(maxsize=512)(_explained_spec)
_task_state = lru_cache(maxsize=512)(job_state)
_attempt_state = lru_cache(maxsize=512)(attempt_state)


def port_lists(ports: str | None) -> dict[str, str]:
    """Ports as clients read them: the numbers of a label, separated by commas."""
    if not ports:
        return {}
    return {label: ",".join(map(str, numbers)) for label, numbers in _ports(ports).items()}
