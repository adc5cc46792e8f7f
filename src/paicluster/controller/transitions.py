"""The steps of a job's life, each a change of its record and a note of what to write. No waiting in here."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, Protocol

from openpaisdk.protocol.completion import (
    STOPPED_BY_USER,
    STOPPED_TO_COMPLETE,
    Verdict,
    decide,
    is_decided,
)
from openpaisdk.protocol.ports import PORT_END, PORT_START, draw_ports
from openpaisdk.protocol.retries import decide_retry
from paicluster.controller.allocations import Allocations
from paicluster.controller.changes import Changes, Event
from paicluster.controller.exit_classification import NEVER_STARTED, PREEMPTED, TaskExit
from paicluster.controller.job_record import (
    ATTEMPT_COMPLETED,
    COMPLETED,
    DELETING,
    PENDING,
    PREPARING,
    RUNNING,
    JobRecord,
)
from paicluster.engines.interface import Node, Placement
from paicluster.scheduler.node_capacity import TaskPlacement
from paicluster.store.rows import AttemptRow, TaskRow

# An attempt that ran this long did real work: what ended it is not the same trouble again.
_PROGRESS_MS = 600_000
_USUAL_PORTS = range(PORT_START, PORT_END)
_PORT_DRAWS = 200
_LASTING_DRAWS = 1000


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
    seats: Sequence[TaskPlacement],
    nodes: dict[str, Node],
    ledger: Allocations,
    ports_free: PortsFree,
    changes: Changes,
    now_ms: int,
) -> list[TaskRow]:
    """Write the intent: a row for each task with a fresh uid, ports and GPUs; without a node only the uid."""
    order = {role.name: number for number, role in enumerate(record.job.task_roles)}
    resources = {role.name: role.resources for role in record.job.task_roles}
    holder = record.holder()
    placed = []
    for seat in seats:
        need = resources[seat.role]
        where = _chosen(seat, nodes, need.ports, ledger, ports_free) if seat.node else {}
        uid = where.pop("uid", None) or str(uuid.uuid4())
        before = record.tasks.by_place.get((seat.role, seat.index))
        task = TaskRow(
            uid=uid,
            job_id=record.row.id,
            attempt=record.row.attempt,
            role=seat.role,
            role_order=order[seat.role],
            task_index=seat.index,
            task_attempt=0 if before is None else before.task_attempt + 1,
            task_uid=uid if before is None else before.task_uid,
            sub_state=PREPARING,
            cpu=need.cpu,
            memory_mb=need.memory_mb,
            created_ms=now_ms,
            retries_total=0 if before is None else before.retries_total + 1,
            retries_accountable=0 if before is None else before.retries_accountable + _counts(before),
            **where,
        )
        record.tasks[uid] = task
        if seat.node:
            ledger.take(task, holder)
        changes.new_tasks.append(task)
        placed.append(task)
    if record.row.sub_state == PENDING:
        set_attempt(record, changes, sub_state=PREPARING, created_ms=now_ms)
        set_job(record, changes, sub_state=PREPARING)
    changes.launch.append(record.row.id)
    return placed


def _counts(ended: TaskRow) -> int:
    """1 when the end of this task attempt was the user's doing."""
    return 0 if ended.lost or ended.exit_code == PREEMPTED else 1


def _chosen(
    seat: TaskPlacement, nodes: dict[str, Node], counts: Any, ledger: Allocations, ports_free: PortsFree
) -> dict[str, Any]:
    """The columns of a task whose place we chose."""
    uid, ports = _draw(nodes[seat.node], counts, ledger, ports_free)
    return {
        "uid": uid,
        "node": seat.node,
        "ip": nodes[seat.node].ip,
        "ports": json.dumps(ports),
        "gpus": json.dumps(list(seat.gpus)),
    }


def _draw(
    node: Node, counts: Any, ledger: Allocations, ports_free: PortsFree
) -> tuple[str, dict[str, tuple[int, ...]]]:
    """A uid whose ports are free. They are computed from the uid, so it is the uid that is redrawn."""
    # Of many ports some always lie in the kernel's own range, unless none of it is drawn from.
    draws = chain(
        repeat((_USUAL_PORTS, True), _PORT_DRAWS),
        repeat((node.non_ephemeral_ports, True), _LASTING_DRAWS if node.non_ephemeral_ports else 0),
        # Better such a port, which is free for now, than none.
        repeat((_USUAL_PORTS, False), _PORT_DRAWS),
    )
    for among, non_ephemeral in draws:
        uid = str(uuid.uuid4())
        ports = draw_ports(uid, counts, among)
        numbers = [port for ports_of in ports.values() for port in ports_of]
        if len(set(numbers)) < len(numbers) or ledger.ports_taken(numbers):
            continue
        if not numbers or ports_free(node.name, numbers, non_ephemeral=non_ephemeral):
            break
    return uid, ports


def preempt(record: JobRecord, for_job: str, changes: Changes) -> None:
    """Ask an opportunistic job's tasks to end; what is decided about it follows when they have."""
    for task in record.live:
        if not task.stop_requested:
            set_task(record, changes, task.uid, stop_requested=True)
            changes.stop.append(task.uid)
    message = f"The job gives way to {for_job}, which has a right to what it uses."
    changes.events.append(Event(record.row.id, "Warning", "Preempted", message, "default-scheduler"))


def fail_unstarted(record: JobRecord, why: str, changes: Changes, now_ms: int) -> None:
    """The job can never start: what it waited for did not come."""
    verdict = Verdict(NEVER_STARTED, "", None, None, False, why)
    _finish_attempt(record, verdict, changes, now_ms)
    _finish_job(record, changes, now_ms)
    changes.events.append(Event(record.row.id, "Warning", "DependencyNeverSatisfied", why))


# -- what was seen --------------------------------------------------------------------------------


def task_placed(record: JobRecord, uid: str, place: Placement, changes: Changes) -> None:
    """The engine found a place for it."""
    if record.tasks[uid].node != place.node:
        set_task(
            record,
            changes,
            uid,
            node=place.node,
            ip=place.ip,
            ports=json.dumps(dict(place.ports)),
            gpus=json.dumps(list(place.gpus)),
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
    """Why we asked this task to stop; None when we did not."""
    if not task.stop_requested:
        # It may have been stopped though that could not be written down.
        return STOPPED_BY_USER if record.stop_wanted else None
    if record.row.exit_code is None:
        # Nothing was decided about the job: its tasks gave way to another.
        return PREEMPTED
    return STOPPED_BY_USER if record.row.exit_code == STOPPED_BY_USER else STOPPED_TO_COMPLETE


# -- what follows ---------------------------------------------------------------------------------


def advance(record: JobRecord, changes: Changes, now_ms: int) -> None:
    """Whatever follows from the tasks as they are now: the attempt's end, a retry, the job's end."""
    state = record.row.sub_state
    if state in (PENDING, ATTEMPT_COMPLETED) and record.stop_wanted:
        _finish_attempt(record, _stopped(record), changes, now_ms)
        _finish_job(record, changes, now_ms)
        return
    if record.unlaunched:
        return  # put back, as soon as the last of its tasks is known to have ended
    if state in (PREPARING, RUNNING):
        verdict = _verdict(record)
        if verdict is None:
            return
        _finish_attempt(record, verdict, changes, now_ms)
        for task in tuple(record.tasks.values()):
            if task.sub_state == ATTEMPT_COMPLETED:
                # It is not started again after all: that was its end.
                set_task(record, changes, task.uid, sub_state=COMPLETED)
            elif not task.over and not task.stop_requested:
                set_task(record, changes, task.uid, stop_requested=True)
                changes.stop.append(task.uid)
        set_job(record, changes, sub_state=DELETING, exit_code=verdict.exit_code)
        state = DELETING
    if state == DELETING and not record.live:
        _attempt_over(record, changes, now_ms)


def _verdict(record: JobRecord) -> Verdict | None:
    policies = record.job.role_policies()
    verdict = None
    # Of an array this is asked at the end of every task, and all of them are looked at only where it is.
    if is_decided(policies, record.tasks.failed, record.tasks.succeeded):
        verdict = decide(policies, record.outcomes(), stop_requested=False)
    if verdict is None or verdict.trigger_role is None:
        verdict = _gave_way(record) or verdict
    if record.stop_wanted and (
        verdict is None or any(task.exit_code == STOPPED_BY_USER for task in record.tasks.values())
    ):
        verdict = _stopped(record)
    return verdict


def _gave_way(record: JobRecord) -> Verdict | None:
    """A gang that was told to give way ends, also where its own rules would bear the loss of tasks."""
    if not record.preemptible:
        return None
    for task in record.tasks.values():
        if task.sub_state == COMPLETED and task.stop_requested and task.exit_code == PREEMPTED:
            told = f"Task {task.role}[{task.task_index}] failed with exit code {PREEMPTED}"
            return Verdict(PREEMPTED, "", task.role, task.task_index, True, told)
    return None


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
    """With what is known of the task that decided, beyond its exit code."""
    caught = json.loads(trigger.exit_info).get("caughtException") if trigger.exit_info else None
    return f"{verdict.diagnostics}: {caught}" if caught and verdict.exit_code else verdict.diagnostics


def _own_code(record: JobRecord, code: int) -> int:
    """That of the program that decided, where it had one: it is what its author knows."""
    told = record.attempt.runtime_exit if record.attempt is not None else None
    own = json.loads(told).get("originUserExitCode") if told else None
    return own if isinstance(own, int) and own and code > 0 else code


def _attempt_over(record: JobRecord, changes: Changes, now_ms: int) -> None:
    changes.ended_attempts.append((record.row.id, record.row.attempt))
    completed_ms = max((task.completed_ms or now_ms for task in record.tasks.values()), default=now_ms)
    set_attempt(record, changes, sub_state=COMPLETED, completed_ms=completed_ms)
    code = record.row.exit_code or 0
    if record.stop_wanted:
        _finish_job(record, changes, completed_ms)
        return
    counts = record.retry_counts()
    started = record.attempt.launched_ms if record.attempt is not None else None
    if code == PREEMPTED or (started is not None and completed_ms - started >= _PROGRESS_MS):
        counts = counts.after_progress()
    decision = decide_retry(record.job.retry_policy(), counts, code, jitter=random.random())
    if not decision.retry:
        if counts.total or record.job.job_retry_count:
            changes.events.append(Event(record.row.id, "Normal", "NotRetried", _sentence(decision.reason)))
        _finish_job(record, changes, completed_ms)
        return
    after = decision.counts
    ended = f"Attempt {record.row.attempt} ended with exit code {_own_code(record, code)}"
    changes.events.append(Event(record.row.id, "Warning", "Retrying", f"{ended}: {decision.reason}."))
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
    """Nothing could be launched: the same attempt waits again, and its tasks never were."""
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


def _finish_job(record: JobRecord, changes: Changes, completed_ms: int) -> None:
    set_attempt(record, changes, sub_state=COMPLETED, completed_ms=completed_ms)
    set_job(record, changes, sub_state=COMPLETED, completed_ms=completed_ms, retry_at_ms=None)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
