"""State transitions of a job: each changes its record and adds what to write to `Changes`. No I/O here."""

from __future__ import annotations

import json
import math
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from itertools import chain, repeat
from typing import Any, Protocol

from paicluster.controller.allocation_records import Allocations
from paicluster.controller.exit_classification import NEVER_STARTED, PREEMPTED, TaskExit
from paicluster.controller.job_record import (
    ATTEMPT_COMPLETED,
    COMPLETED,
    DELETING,
    PENDING,
    PREPARING,
    RUNNING,
    JobRecord,
    ran_long,
)
from paicluster.controller.reconcile_changes import Changes, Event
from paicluster.engines.interface import Node, Placement
from paicluster.scheduler.placement import TaskPlacement
from paicluster.store.rows import AttemptRow, TaskRow
from paiprotocol.jobs.completion import (
    STOPPED_BY_USER,
    STOPPED_TO_COMPLETE,
    Verdict,
    decide,
    is_decided,
)
from paiprotocol.jobs.ports import PORT_END, PORT_START, draw_ports
from paiprotocol.jobs.retries import decide_retry
from paiprotocol.jobs.states import job_state

_DEFAULT_PORTS = range(PORT_START, PORT_END)


class PortsFree(Protocol):
    def __call__(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool: ...


def set_job(record: JobRecord, changes: Changes, **columns: Any) -> None:
    record.row = replace(record.row, **columns)
    changes.job_columns.setdefault(record.row.id, {}).update(columns)


def set_task(record: JobRecord, changes: Changes, uid: str, **columns: Any) -> TaskRow:
    task = record.tasks[uid] = replace(record.tasks[uid], **columns)
    known = changes.task_columns.setdefault(uid, {"uid": uid, "job_id": record.row.id})
    known.update(columns)
    return task


def set_attempt(record: JobRecord, changes: Changes, **columns: Any) -> None:
    if record.attempt is None or record.attempt.attempt != record.row.attempt:
        record.attempt = AttemptRow(record.row.id, record.row.attempt, PENDING)
    record.attempt = replace(record.attempt, **columns)
    changes.attempts[record.row.id, record.row.attempt] = record.attempt


# -- starting -------------------------------------------------------------------------------------


def place(
    record: JobRecord,
    placements: Sequence[TaskPlacement],
    nodes: dict[str, Node],
    allocations: Allocations,
    ports_free: PortsFree,
    changes: Changes,
    now_ms: int,
) -> list[TaskRow]:
    """Record the intent: a row for each task with a new uid, ports and GPUs; without a node only the uid."""
    order = {role.name: number for number, role in enumerate(record.job.task_roles)}
    resources = {role.name: role.resources for role in record.job.task_roles}
    held = {role.name: record.resources_of(role.name) for role in record.job.task_roles}
    owner = record.owner()
    placed = []
    for placement in placements:
        request = resources[placement.role]
        columns = (
            _placement_columns(placement, nodes, request.ports, allocations, ports_free)
            if placement.node
            else {}
        )
        uid = columns.pop("uid", None) or str(uuid.uuid4())
        previous = record.tasks.by_index.get((placement.role, placement.index))
        task = TaskRow(
            uid=uid,
            job_id=record.row.id,
            attempt=record.row.attempt,
            role=placement.role,
            role_order=order[placement.role],
            task_index=placement.index,
            task_attempt=0 if previous is None else previous.task_attempt + 1,
            task_uid=uid if previous is None else previous.task_uid,
            sub_state=PREPARING,
            # An external scheduler has its own minimum.
            cpu=held[placement.role].cpu if placement.node else request.cpu,
            memory_mb=held[placement.role].memory_mb if placement.node else request.memory_mb,
            created_ms=now_ms,
            retries_total=0 if previous is None else previous.retries_total + 1,
            retries_accountable=0 if previous is None else previous.retries_accountable + _counts(previous),
            **columns,
        )
        record.tasks[uid] = task
        if placement.node:
            allocations.allocate(task, owner)
        else:
            allocations.allocate_delegated(uid, owner, held[placement.role])
        changes.new_tasks.append(task)
        placed.append(task)
    if record.row.sub_state == PENDING:
        set_attempt(record, changes, sub_state=PREPARING, created_ms=now_ms)
        set_job(record, changes, sub_state=PREPARING)
    changes.launch.append(record.row.id)
    return placed


def _counts(ended: TaskRow) -> int:
    """1 if this task attempt counts against the retry limit, 0 if the platform ended it."""
    return 0 if ended.lost or ended.exit_code == PREEMPTED else 1


def _placement_columns(
    placement: TaskPlacement,
    nodes: dict[str, Node],
    port_counts: Any,
    allocations: Allocations,
    ports_free: PortsFree,
) -> dict[str, Any]:
    """Columns of a task that our scheduler placed."""
    uid, ports = draw_free_ports(nodes[placement.node], port_counts, allocations, ports_free)
    return {
        "uid": uid,
        "node": placement.node,
        "ip": nodes[placement.node].ip,
        "ports": json.dumps(ports),
        "gpus": json.dumps(list(placement.gpus)),
    }


def draw_free_ports(
    node: Node,
    port_counts: Any,
    allocations: Allocations,
    ports_free: PortsFree,
    *,
    max_draws: int = 200,
    max_non_ephemeral_draws: int = 1000,
) -> tuple[str, dict[str, tuple[int, ...]]]:
    """A uid whose ports are free. Ports are derived from the uid, so the uid is drawn again."""
    # Some of many ports always lie in the kernel's ephemeral range, unless it is excluded.
    draws = chain(
        repeat((_DEFAULT_PORTS, True), max_draws),
        repeat((node.non_ephemeral_ports, True), max_non_ephemeral_draws if node.non_ephemeral_ports else 0),
        # A port of that range, free for now, is better than none.
        repeat((_DEFAULT_PORTS, False), max_draws),
    )
    for port_range, non_ephemeral in draws:
        uid = str(uuid.uuid4())
        ports = draw_ports(uid, port_counts, port_range)
        numbers = [port for ports_of in ports.values() for port in ports_of]
        if len(set(numbers)) < len(numbers) or allocations.ports_taken(numbers):
            continue
        if not numbers or ports_free(node.name, numbers, non_ephemeral=non_ephemeral):
            break
    return uid, ports


def preempt(record: JobRecord, preemptor: str, changes: Changes) -> None:
    """Ask the tasks of an opportunistic job to stop; the attempt is finished when they have."""
    for task in record.live:
        if not task.stop_requested:
            set_task(record, changes, task.uid, stop_requested=True)
            changes.stop.append(task.uid)
    message = f"The job is preempted by {preemptor}, whose quota includes the resources it uses."
    changes.events.append(
        Event(record.row.id, "Warning", "Preempted", message, "default-scheduler", pending=True)
    )


def fail_unstarted(record: JobRecord, reason: str, changes: Changes, now_ms: int) -> None:
    """Fail a job that can never start because its dependencies cannot be satisfied."""
    verdict = Verdict(NEVER_STARTED, "", None, None, False, reason)
    _finish_attempt(record, verdict, changes, now_ms)
    _finish_job(record, changes, now_ms)
    changes.events.append(Event(record.row.id, "Warning", "DependencyNeverSatisfied", reason))


# -- observations ---------------------------------------------------------------------------------


def task_placed(record: JobRecord, uid: str, placement: Placement, changes: Changes) -> None:
    """Record where the external scheduler placed a task."""
    if record.tasks[uid].node != placement.node:
        set_task(
            record,
            changes,
            uid,
            node=placement.node,
            ip=placement.ip,
            ports=json.dumps(dict(placement.ports)),
            gpus=json.dumps(list(placement.gpus)),
        )


def task_started(record: JobRecord, uid: str, started_ms: int, changes: Changes) -> None:
    if record.tasks[uid].sub_state == PREPARING:
        set_task(record, changes, uid, sub_state=RUNNING, launched_ms=started_ms)
    if record.row.sub_state == PREPARING:
        record.launch_error, record.launch_failures = "", 0
        set_attempt(record, changes, sub_state=RUNNING, launched_ms=started_ms)
        set_job(record, changes, sub_state=RUNNING, launched_ms=started_ms)


def task_ended(
    record: JobRecord,
    uid: str,
    outcome: TaskExit,
    started_ms: int | None,
    ended_ms: int,
    changes: Changes,
    *,
    lost: bool,
) -> None:
    if started_ms is not None:
        task_started(record, uid, started_ms, changes)
    ended = set_task(
        record,
        changes,
        uid,
        sub_state=COMPLETED,
        exit_code=outcome.code,
        completed_ms=max(ended_ms, started_ms or 0),
        exit_info=outcome.info_json(),
        lost=lost,
    )
    if record.is_to_be_retried(ended):
        set_task(record, changes, uid, sub_state=ATTEMPT_COMPLETED)


def stop_code_of(record: JobRecord, task: TaskRow) -> int | None:
    """Exit code of a task that the controller asked to stop; None when it did not ask."""
    if not task.stop_requested:
        # It may have been stopped while that could not be written to the database.
        return STOPPED_BY_USER if record.stop_requested else None
    if record.row.exit_code is None:
        # The attempt has no outcome: its tasks were preempted.
        return PREEMPTED
    return STOPPED_BY_USER if record.row.exit_code == STOPPED_BY_USER else STOPPED_TO_COMPLETE


# -- outcomes -------------------------------------------------------------------------------------


def advance(record: JobRecord, changes: Changes, now_ms: int) -> None:
    """Apply what follows from the current state of the tasks: end of the attempt, retry, end of the job."""
    state = record.row.sub_state
    if record.condemned and state in (PENDING, ATTEMPT_COMPLETED, PREPARING, RUNNING):
        changes.events.append(Event(record.row.id, "Warning", "ServerDied", _why_condemned(record)))
    if state in (PENDING, ATTEMPT_COMPLETED) and (record.stop_requested or record.condemned):
        ends_by = _stopped(record) if record.stop_requested else _condemned(record)
        _finish_attempt(record, ends_by, changes, now_ms)
        _finish_job(record, changes, now_ms)
        return
    if record.unlaunched:
        return  # requeued once all of its tasks are known to have ended
    if state in (PREPARING, RUNNING):
        verdict = _verdict(record)
        if verdict is None:
            return
        _finish_attempt(record, verdict, changes, now_ms)
        for task in tuple(record.tasks.values()):
            if task.sub_state == ATTEMPT_COMPLETED:
                # It is not retried any more: that attempt was its last.
                set_task(record, changes, task.uid, sub_state=COMPLETED)
            elif not task.ended and not task.stop_requested:
                set_task(record, changes, task.uid, stop_requested=True)
                changes.stop.append(task.uid)
        set_job(record, changes, sub_state=DELETING)
        state = DELETING
    if state == DELETING and not record.live:
        _attempt_ended(record, changes, now_ms)


def _verdict(record: JobRecord) -> Verdict | None:
    if record.condemned and not record.stop_requested:
        return _condemned(record)
    policies = record.job.role_policies()
    verdict = None
    # For an array this runs at the end of every task; all outcomes are read only once they decide.
    if is_decided(policies, record.tasks.failed, record.tasks.succeeded):
        verdict = decide(policies, record.outcomes(), stop_requested=False)
    if verdict is None or verdict.trigger_role is None:
        verdict = _preempted(record) or verdict
    if record.stop_requested and (
        verdict is None or any(task.exit_code == STOPPED_BY_USER for task in record.tasks.values())
    ):
        verdict = _stopped(record)
    return verdict


def _preempted(record: JobRecord) -> Verdict | None:
    """Verdict on a preempted gang: it ends, even if its completion policy would tolerate lost tasks."""
    if not record.preemptible:
        return None
    for task in record.tasks.values():
        if task.sub_state == COMPLETED and task.stop_requested and task.exit_code == PREEMPTED:
            diagnostics = f"Task {task.role}[{task.task_index}] failed with exit code {PREEMPTED}"
            return Verdict(PREEMPTED, "", task.role, task.task_index, True, diagnostics)
    return None


def _condemned(record: JobRecord) -> Verdict:
    return Verdict(NEVER_STARTED, "", None, None, False, _why_condemned(record))


def _why_condemned(record: JobRecord) -> str:
    return (
        f"{record.condemned} The job is not tried again, to keep the cluster running. "
        "Make it smaller, or submit it again if the server was killed for another reason."
    )


def _stopped(record: JobRecord) -> Verdict:
    verdict = decide(record.job.role_policies(), (), stop_requested=True)
    assert verdict is not None
    if record.launch_error:
        verdict = replace(verdict, diagnostics=f"{verdict.diagnostics}\n{record.launch_error}")
    return verdict


def _finish_attempt(record: JobRecord, verdict: Verdict, changes: Changes, now_ms: int) -> None:
    trigger = next(
        (
            task
            for task in record.tasks.values()
            if (task.role, task.task_index) == (verdict.trigger_role, verdict.trigger_index)
        ),
        None,
    )
    set_attempt(
        record,
        changes,
        sub_state=DELETING,
        exit_code=verdict.exit_code,
        exit_type="Succeeded" if verdict.exit_code == 0 else "Failed",
        trigger_message=verdict.trigger_message,
        trigger_role=verdict.trigger_role,
        trigger_index=verdict.trigger_index,
        diagnostics=verdict.diagnostics if trigger is None else _with_trigger(verdict, trigger),
        runtime_exit=trigger.exit_info if trigger is not None and verdict.exit_code != 0 else None,
    )
    set_job(record, changes, exit_code=verdict.exit_code)


def _with_trigger(verdict: Verdict, trigger: TaskRow) -> str:
    """Diagnostics of the verdict, with the error of the task that triggered it, if there is one."""
    caught = json.loads(trigger.exit_info).get("caughtException") if trigger.exit_info else None
    return f"{verdict.diagnostics}: {caught}" if caught and verdict.exit_code else verdict.diagnostics


def _own_code(record: JobRecord, code: int) -> int:
    """The exit code of the user's program in the deciding task, if it has one: users know that one."""
    runtime_exit = record.attempt.runtime_exit if record.attempt is not None else None
    own = json.loads(runtime_exit).get("originUserExitCode") if runtime_exit else None
    return own if isinstance(own, int) and own and code > 0 else code


def _attempt_ended(record: JobRecord, changes: Changes, now_ms: int) -> None:
    changes.ended_attempts.append((record.row.id, record.row.attempt))
    completed_ms = max((task.completed_ms or now_ms for task in record.tasks.values()), default=now_ms)
    set_attempt(record, changes, sub_state=COMPLETED, completed_ms=completed_ms)
    code = record.row.exit_code or 0
    if record.condemned and not record.stop_requested:
        _finish_job(record, changes, completed_ms)
        return
    counts = record.retry_counts()
    started = record.attempt.launched_ms if record.attempt is not None else None
    made_progress = ran_long(started, completed_ms)
    if code == PREEMPTED or made_progress:
        counts = counts.after_progress()
    decision = decide_retry(
        record.job.retry_policy(), counts, code, made_progress=made_progress, jitter=random.random()
    )
    if record.stop_requested:
        # What the platform ended is no result of the job: without the stop it would go on.
        if decision.retry and not decision.counted:
            _finish_attempt(record, _stopped(record), changes, now_ms)
        _finish_job(record, changes, completed_ms)
        return
    if not decision.retry:
        if counts.total or record.job.job_retry_count:
            changes.events.append(Event(record.row.id, "Normal", "NotRetried", _sentence(decision.reason)))
        _finish_job(record, changes, completed_ms)
        return
    after = decision.counts
    # Attempts are numbered from 1 where people read, as in the options of commands and in the portal.
    ended = f"Attempt {record.row.attempt + 1} ended with exit code {_own_code(record, code)}"
    delay = f"; it starts in {math.ceil(decision.delay_s)} s" if decision.delay_s else ""
    changes.events.append(
        Event(record.row.id, "Warning", "Retrying", f"{ended}: {decision.reason}{delay}.", pending=True)
    )
    set_job(
        record,
        changes,
        sub_state=ATTEMPT_COMPLETED,
        retries=after.total,
        retries_user=after.accountable,
        retries_platform=after.platform,
        platform_streak=after.platform_streak,
        retry_delay_s=decision.delay_s,
        retry_at_ms=now_ms + int(decision.delay_s * 1000),
    )


def requeue(record: JobRecord, changes: Changes) -> None:
    """Requeue an attempt of which no task could be launched; its task rows are deleted."""
    changes.forgotten[record.row.id] = record.row.attempt
    for uid in record.tasks:
        changes.task_columns.pop(uid, None)
    record.forget_tasks()
    record.launch_failures += 1
    record.deferred = True
    set_attempt(record, changes, sub_state=PENDING)
    set_job(record, changes, sub_state=PENDING)


def begin_next_attempt(record: JobRecord, changes: Changes) -> None:
    record.forget_tasks()
    set_job(
        record,
        changes,
        sub_state=PENDING,
        attempt=record.row.retries,
        exit_code=None,
        launched_ms=None,
        completed_ms=None,
        retry_at_ms=None,
        retry_delay_s=None,
    )


class NextQueue(Enum):
    """Where a job goes after a transition."""

    # The retry delay is over: begin the next attempt, then ask again.
    NEXT_ATTEMPT = auto()
    # No task of the attempt could be launched: requeue it, then ask again.
    REQUEUE = auto()
    # Wait for the delay before the next attempt, or before the next try to launch.
    RETRY_DELAY = auto()
    LAUNCH_BACKOFF = auto()
    # All of its tasks, or some of an array, are to be scheduled.
    PENDING = auto()
    # Nothing to schedule: it runs, or is being stopped.
    ACTIVE = auto()
    FINISHED = auto()


def next_queue(record: JobRecord, now_ms: int) -> NextQueue:
    """Where a job of this state belongs."""
    state = record.row.sub_state
    if state == COMPLETED:
        return NextQueue.FINISHED
    if state == ATTEMPT_COMPLETED:
        return NextQueue.RETRY_DELAY if retry_wait_ms(record, now_ms) > 0 else NextQueue.NEXT_ATTEMPT
    if record.unlaunched:
        return NextQueue.ACTIVE if record.live else NextQueue.REQUEUE
    if state == PENDING:
        return NextQueue.LAUNCH_BACKOFF if record.deferred else NextQueue.PENDING
    if state in (PREPARING, RUNNING) and not record.job.gang and any(record.unstarted()):
        return NextQueue.PENDING
    return NextQueue.ACTIVE


def retry_wait_ms(record: JobRecord, now_ms: int) -> int:
    """Time until the next attempt, at most its whole delay: the clock may have been set back."""
    return min((record.row.retry_at_ms or 0) - now_ms, int((record.row.retry_delay_s or 0) * 1000))


def _finish_job(record: JobRecord, changes: Changes, completed_ms: int) -> None:
    set_attempt(record, changes, sub_state=COMPLETED, completed_ms=completed_ms)
    states = (job_state(task.sub_state, task.exit_code) for task in record.tasks.values())
    set_job(
        record,
        changes,
        sub_state=COMPLETED,
        completed_ms=completed_ms,
        retry_at_ms=None,
        failed_tasks=sum(state == "FAILED" for state in states),
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
