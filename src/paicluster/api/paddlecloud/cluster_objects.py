"""Jobs, tasks and quotas as the Kubernetes objects that PaddleCloud's Go client reads.

It reads keys without looking whether they exist, so each object has all of them, with the types it expects.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from paicluster.api.paddlecloud.job_request import PaddleJob
from paicluster.api.paddlecloud.job_translation import MASTER, PSERVER, TRAINER, namespace_of
from paicluster.api.wire.paddlecloud import (
    ContainerState,
    ContainerStatus,
    JobObjectSpec,
    JobObjectStatus,
    ObjectMetadata,
    PaddleJobObject,
    PaddleJobSummary,
    PaddlePod,
    PaddleQuota,
    PaddleReplicaSet,
    PodSpec,
    PodStatus,
    QuotaMetadata,
    QuotaSpec,
    QuotaStatus,
    ReplicaStatus,
    Terminated,
)
from paicluster.scheduler.resource_requests import Resources
from paicluster.services.quota_reports import QuotaReport, Used
from paicluster.store.rows import JobRow, TaskRow
from paicluster.store.user_jobs import TaskCounts, UserJob
from paiprotocol.jobs.exit_codes import exit_spec
from paiprotocol.jobs.log_end import last_line
from paiprotocol.jobs.states import STOP_CODES, attempt_state

# What PaddleCloud's launcher writes as the termination message of a pod.
_EXIT_MESSAGES = {
    1: "General Error",
    134: "Program Abort",
    136: "Error Arithmetic Operation(Floating Point Exception)",
    139: "Segmentation Fault",
}
_MAX_MESSAGE_CHARS = 300
"""Characters of a line of a log in the list of workers, which may have many thousand entries."""
_PHASES = {"WAITING": "Pending", "RUNNING": "Running", "STOPPING": "Running", "SUCCEEDED": "Succeeded"}


class _Resources(msgspec.Struct):
    cpu: int = 0
    memory_mb: int = msgspec.field(default=0, name="memoryMB")
    gpu: int = 0


class _Role(msgspec.Struct):
    instances: int = 1
    resources: _Resources = msgspec.field(default_factory=_Resources, name="resourcePerInstance")


class _Extras(msgspec.Struct):
    paddlecloud: PaddleJob | None = None


class _JobText(msgspec.Struct):
    """The parts of a version 2 job that a list shows."""

    roles: dict[str, _Role] = msgspec.field(default_factory=dict, name="taskRoles")
    extras: _Extras = msgspec.field(default_factory=_Extras)


_decode = msgspec.json.Decoder(_JobText).decode


class ListedJob:
    """A user's job, submitted through PaddleCloud or not, as lists show it."""

    def __init__(self, job: UserJob):
        self.row = job.row
        self._job = job
        try:
            text = _decode(job.text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # YAML of an older server, or a user's own `extras.paddlecloud`.
            text = _JobText()
        self.paddle = text.extras.paddlecloud
        self.submitted = self.paddle or _as_paddle_job(job.row, text)

    @property
    def is_terminating(self) -> bool:
        return self.row.execution_type == "STOP" and self.row.sub_state != "Completed"

    @property
    def trainers(self) -> TaskCounts:
        """All tasks of a job without trainers count as such."""
        return self._job.counts.get(TRAINER, TaskCounts()) if self.paddle else self._job.total

    def summary(self) -> PaddleJobSummary:
        """The job as it was submitted, under its final name, with its state and times: jobs that are being
        stopped are in no other list.
        """
        row = self.row
        return PaddleJobSummary(
            **{
                **msgspec.structs.asdict(self.submitted),
                "name": row.name,
                "state": row.state,
                "created": timestamp(row.submission_ms),
                "started": _time_or_none(row.launched_ms),
            }
        )

    def as_job(self) -> PaddleJobObject:
        """As a batch/v1 Job."""
        counts, row = self.trainers, self.row
        number = self.submitted.parallelism
        return PaddleJobObject(
            _metadata(row, f"{row.name}-{TRAINER}"),
            JobObjectSpec(number, number),
            JobObjectStatus(
                active=counts.active or None,
                succeeded=counts.succeeded or None,
                failed=counts.failed or None,
                start_time=_time_or_none(row.launched_ms),
                completion_time=_time_or_none(row.completed_ms),
                state=row.state,
            ),
        )

    def replica_sets(self) -> list[PaddleReplicaSet]:
        """Its parameter servers and its master."""
        if self.paddle is None:
            return []
        sets = {PSERVER: self.paddle.pservers, MASTER: int(self.paddle.faulttolerant)}
        return [
            PaddleReplicaSet(
                _metadata(self.row, f"{self.row.name}-{role}", label=f"paddle-job-{role}"),
                ReplicaStatus(number, self._job.counts.get(role, TaskCounts()).running or None),
            )
            for role, number in sets.items()
            if number
        ]


def _as_paddle_job(row: JobRow, text: _JobText) -> PaddleJob:
    role = next(iter(text.roles.values()), _Role())
    memory = f"{role.resources.memory_mb}Mi"
    return PaddleJob(
        name=row.name,
        job_package="",
        parallelism=row.total_tasks,
        cpu=role.resources.cpu,
        gpu=role.resources.gpu,
        memory=memory,
        pservers=0,
        pscpu=0,
        psmemory="0Mi",
    )


def pod_name(row: JobRow, task: TaskRow) -> str:
    """Name of a task. It has the task's index, so that it is the same after a retry."""
    return _pod_name(row, task.role, task.task_index)


def _pod_name(row: JobRow, role: str, index: int) -> str:
    return f"{row.name}-{role}-{index}"


def pending_pod(row: JobRow, role: str, index: int, reason: str | None) -> PaddlePod:
    """A task that has not been launched as a Pod, with the reason why it waits.

    The Go client shows the message of an end and no other, so the reason is there, too; it has no exit code.
    """
    why = Terminated(exit_code=None, message=reason, finished_at=None) if reason else None
    return PaddlePod(
        _metadata(row, _pod_name(row, role, index)),
        PodSpec(node_name=None),
        PodStatus(
            phase="Pending",
            message=reason,
            start_time=None,
            pod_ip=None,
            host_ip=None,
            container_statuses=[ContainerStatus(role, 0, ContainerState(why))],
        ),
    )


def pod(row: JobRow, task: TaskRow) -> PaddlePod:
    """A task as a Pod. Its list of containers is never empty: clients read the first."""
    state = attempt_state(task.sub_state, task.exit_code)
    if task.exit_code in STOP_CODES:
        # Stopped because the job was done, or because its user killed it.
        phase = "Failed" if row.execution_type == "STOP" else "Succeeded"
    else:
        phase = _PHASES.get(state, "Failed" if state == "FAILED" else "Unknown")
    terminated = None
    if task.ended and task.exit_code is not None:
        # A task that was stopped because the job was done has not failed, however its program ended.
        info = msgspec.json.decode(task.exit_info) if task.exit_info else {}
        exit_code = 0 if phase == "Succeeded" else _program_exit_code(task, info)
        terminated = Terminated(exit_code, _exit_message(exit_code, info), _time_or_none(task.completed_ms))
    return PaddlePod(
        _metadata(row, pod_name(row, task)),
        PodSpec(task.node),
        PodStatus(
            phase=phase,
            message=None,
            start_time=_time_or_none(task.launched_ms),
            pod_ip=task.ip,
            host_ip=task.ip,
            container_statuses=[ContainerStatus(task.role, task.retries_total, ContainerState(terminated))],
        ),
    )


def _program_exit_code(task: TaskRow, info: dict[str, Any]) -> int:
    """Exit code of the program, where the cluster's own code classifies it."""
    original = info.get("originUserExitCode")
    return original if isinstance(original, int) else int(task.exit_code or 0)


def _exit_message(exit_code: int, info: dict[str, Any]) -> str | None:
    """What an exit code means; of one that means nothing by itself, the last line that the task wrote."""
    if exit_code < 0:
        spec = exit_spec(exit_code)
        return spec.reason or spec.phrase
    if exit_code == 0 or exit_code in _EXIT_MESSAGES:
        return _EXIT_MESSAGES.get(exit_code)
    last = last_line(str(info.get("errorLogs", {}).get("user", "")))
    return last[:_MAX_MESSAGE_CHARS] or None


def resource_quota(report: QuotaReport, capacity: Resources) -> PaddleQuota:
    """A quota as a ResourceQuota. What is not limited ends where the cluster does."""
    amounts: dict[str, tuple[Used, int, Callable[[int], str]]] = {
        "requests.cpu": (report.cpu, capacity.cpu, str),
        "requests.memory": (report.memory_mb, capacity.memory_mb, _memory),
        "alpha.kubernetes.io/nvidia-gpu": (report.gpu, capacity.gpu, str),
        "pods": (report.tasks, capacity.cpu, str),
    }
    hard = {
        name: show(most if amount.limit is None else amount.limit)
        for name, (amount, most, show) in amounts.items()
    }
    used = {name: show(amount.used) for name, (amount, _, show) in amounts.items()}
    return PaddleQuota(
        QuotaMetadata(f"{report.kind}-{report.name}", namespace_of(report.name)),
        QuotaSpec(hard),
        QuotaStatus(hard, used),
    )


def _memory(amount_mb: int) -> str:
    return f"{amount_mb // 1024}Gi" if amount_mb % 1024 == 0 else f"{amount_mb}Mi"


def _metadata(row: JobRow, name: str, label: str = "paddle-job") -> ObjectMetadata:
    return ObjectMetadata(name, namespace_of(row.username), timestamp(row.submission_ms), {label: row.name})


def timestamp(ms: int) -> str:
    """Milliseconds as Kubernetes writes a time."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time_or_none(ms: int | None) -> str | None:
    return None if ms is None else timestamp(ms)
