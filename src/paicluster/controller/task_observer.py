"""Observer of tasks: asks the engines for their state and applies it to the records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from paicluster.controller import exit_classification, transitions
from paicluster.controller.active_jobs import ActiveJobs
from paicluster.controller.job_record import JobRecord
from paicluster.controller.reconcile_changes import Changes, Event
from paicluster.engines.interface import Observation, Phase
from paicluster.engines.router import EngineRouter
from paicluster.store.rows import TaskRow
from paiprotocol.jobs.log_end import SEARCHED_BYTES


class Observer:
    def __init__(self, engines: EngineRouter, active: ActiveJobs):
        self._engines = engines
        self._active = active

    async def observe(
        self, uids: Iterable[str], touched: dict[int, JobRecord], changes: Changes, now_ms: int
    ) -> None:
        """Observe tasks; jobs whose state this changes are added to ``touched``."""
        observations = await self._engines.observe([uid for uid in uids if uid in self._active.job_of])
        for uid, observation in observations.items():
            record = self._active.records.get(self._active.job_of.get(uid, -1))
            task = record.tasks.get(uid) if record is not None else None
            if record is None or task is None or task.ended:
                continue
            touched[record.row.id] = record
            if observation.placement is not None:
                transitions.task_placed(record, uid, observation.placement, changes)
                task = record.tasks[uid]
            if observation.phase is Phase.ABSENT:
                # The intent was written, and a crash came before the start. Relaunching is safe.
                if record.launching is None and not task.stop_requested and not record.condemned:
                    record.launch_again(uid)
                    changes.launch.append(record.row.id)
                elif task.stop_requested:
                    changes.stop.append(uid)
            elif observation.phase in (Phase.RUNNING, Phase.QUEUED):
                if observation.phase is Phase.RUNNING:
                    transitions.task_started(record, uid, observation.started_ms or now_ms, changes)
                if task.stop_requested and uid not in self._active.stop_sent:
                    changes.stop.append(uid)
            else:
                await self._end_task(record, task, observation, changes, now_ms)
        changes.launch = list(dict.fromkeys(changes.launch))

    async def _end_task(
        self, record: JobRecord, task: TaskRow, observation: Observation, changes: Changes, now_ms: int
    ) -> None:
        stop_code = transitions.stop_code_of(record, task)
        if record.launch_rejection and observation.started_ms is None and stop_code is None:
            observation = replace(observation, rejection=record.launch_rejection)
        tail = b""
        if exit_classification.needs_log(observation, stop_code=stop_code):
            tail = await self._engines.log_tail(task.uid, SEARCHED_BYTES)
        outcome = exit_classification.task_exit(
            observation, stop_code=stop_code, log_tail=tail, time_limit_s=record.job.additions.time_limit_s
        )
        if outcome.code == exit_classification.OUT_OF_TIME:
            reason = str(outcome.info["caughtException"])
            changes.events.append(Event(record.row.id, "Warning", "TimeLimitExceeded", reason))
        lost = observation.phase is Phase.LOST or observation.loss is not None
        transitions.task_ended(
            record,
            task.uid,
            outcome,
            observation.started_ms,
            observation.ended_ms or now_ms,
            changes,
            lost=lost,
        )
        if lost:
            reason = exit_classification.loss_reason(observation)
            message = f"Task {task.role}[{task.task_index}] was lost: {reason}"
            changes.events.append(Event(record.row.id, "Warning", "TaskLost", message))
        self._active.allocations.free(task.uid)
        self._active.back_off(record, record.tasks[task.uid], 0)
