"""Typed API responses. ``raw`` is the response itself, for programs that need every field.

Plain classes: importing dataclasses and typing takes longer than most commands take to run.
"""

from __future__ import annotations

from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypedDict

    class JobFilter(TypedDict, total=False):
        """Which jobs to list. ``state`` and ``tags`` are comma-separated; what is empty selects all jobs."""

        user: str
        state: str
        keyword: str
        virtual_cluster: str
        tags: str


FINAL_STATES = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
STATES = ("WAITING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED", "UNKNOWN")


def check_states(states: str) -> None:
    """Check a comma-separated list of job states."""
    for state in states.split(","):
        if state.strip().upper() in STATES:
            continue
        from difflib import get_close_matches

        near = get_close_matches(state.strip().upper(), STATES, 1)
        raise UsageError(
            f"There is no job state {state!r}." + (f" Did you mean {near[0]}?" if near else ""),
            hint=f"The states are {', '.join(STATES)}.",
        )


def text(raw: Mapping[str, object], key: str) -> str:
    value = raw.get(key)
    return "" if value is None else str(value)


def number(raw: Mapping[str, object], key: str) -> int | None:
    value = raw.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or value - value != 0:
        return None  # no number, or an infinite one
    return int(value)


def mapping_at(raw: Mapping[str, object], key: str) -> dict[str, object]:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def name_list(raw: Mapping[str, object], key: str) -> list[str]:
    """A list of names; older clusters send them as comma-separated text."""
    value = raw.get(key)
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [str(item) for item in value] if isinstance(value, list) else []


def _launch_time(raw: Mapping[str, object], code_key: str) -> int | None:
    """Launch time; None if never launched. For those, clusters report the completion time as launch time."""
    launched = number(raw, "launchedTime")
    # The exit code of a program is never negative.
    never_launched = launched == number(raw, "completedTime") and (number(raw, code_key) or 0) < 0
    return None if never_launched else launched


class JobSummary:
    """A job in a list."""

    __slots__ = (
        "completed_ms",
        "exit_code",
        "failed_tasks",
        "gpus",
        "launched_ms",
        "name",
        "raw",
        "reason",
        "retries",
        "state",
        "submitted_ms",
        "tags",
        "tasks",
        "user",
        "virtual_cluster",
    )

    def __init__(self, raw: dict[str, object]):
        self.raw = raw
        self.name = text(raw, "name")
        self.user = text(raw, "username")
        self.tags = name_list(raw, "tags")
        self.state = text(raw, "state") or "UNKNOWN"
        self.submitted_ms = number(raw, "submissionTime") or number(raw, "createdTime")
        self.launched_ms = _launch_time(raw, "appExitCode")
        self.completed_ms = number(raw, "completedTime")
        self.exit_code = number(raw, "appExitCode")
        self.virtual_cluster = text(raw, "virtualCluster")
        self.retries = number(raw, "retries") or 0
        self.tasks = number(raw, "totalTaskNumber") or 0
        self.failed_tasks = number(raw, "failedTaskNumber") or 0
        """Of a finished job with several tasks, where the cluster tells."""
        self.gpus = number(raw, "totalGpuNumber") or 0
        self.reason = text(raw, "reason")

    @property
    def whole_name(self) -> str:
        return f"{self.user}~{self.name}"

    @property
    def is_finished(self) -> bool:
        return self.state in FINAL_STATES

    def __getitem__(self, key: str) -> object:
        return self.raw[key]

    def __repr__(self) -> str:
        return f"<job {self.whole_name}: {self.state}>"


class Task:
    """One task of a job, in its current attempt."""

    __slots__ = (
        "attempt",
        "cause",
        "completed_ms",
        "container_id",
        "exit_code",
        "index",
        "ip",
        "launched_ms",
        "log",
        "origin_exit_code",
        "ports",
        "raw",
        "role",
        "state",
    )

    def __init__(self, role: str, raw: dict[str, object]):
        self.raw = raw
        self.role = role
        self.index = number(raw, "taskIndex") or 0
        self.state = text(raw, "taskState") or "UNKNOWN"
        self.exit_code = number(raw, "containerExitCode")
        self.origin_exit_code = number(raw, "originUserExitCode")
        self.ip = text(raw, "containerIp")
        self.ports = {str(k): str(v) for k, v in mapping_at(raw, "containerPorts").items()}
        self.launched_ms = _launch_time(raw, "containerExitCode")
        self.completed_ms = number(raw, "completedTime")
        self.attempt = number(raw, "attemptId") or 0
        self.log = text(raw, "containerLog")
        self.container_id = text(raw, "containerId")
        self.cause = text(raw, "cause")
        """Why it failed, in one line; empty if it did not, or if the cluster reports nothing about it."""
        if not self.cause and self.state == "FAILED":  # OpenPAI has only the diagnostics
            self.cause = text(raw, "containerExitDiagnostics").strip().partition("\n")[0]

    @property
    def own_exit_code(self) -> int | None:
        """The program's own exit code if the cluster reports it, else the exit code the cluster assigned."""
        return self.exit_code if self.origin_exit_code is None else self.origin_exit_code

    def __repr__(self) -> str:
        return f"<task {self.role}[{self.index}]: {self.state}>"


class JobStatus:
    """One job, with its tasks."""

    __slots__ = (
        "attempt",
        "completed_ms",
        "diagnostics",
        "exit_code",
        "launched_ms",
        "name",
        "origin_exit_code",
        "raw",
        "retries",
        "state",
        "submitted_ms",
        "tags",
        "tasks",
        "trigger",
        "trigger_task",
        "user",
        "virtual_cluster",
    )

    def __init__(self, raw: dict[str, object]):
        status = mapping_at(raw, "jobStatus")
        self.raw = raw
        self.name = text(raw, "name") or text(status, "name")
        self.tags = name_list(raw, "tags")
        self.user = text(status, "username")
        self.state = text(status, "state") or "UNKNOWN"
        self.attempt = number(status, "attemptId") or 0
        self.retries = number(status, "retries") or 0
        self.submitted_ms = number(status, "submissionTime") or number(status, "createdTime")
        self.launched_ms = _launch_time(status, "appExitCode")
        self.completed_ms = number(status, "completedTime")
        self.exit_code = number(status, "appExitCode")
        self.origin_exit_code = number(
            mapping_at(mapping_at(status, "appExitMessages"), "runtime"), "originUserExitCode"
        )
        self.diagnostics = text(status, "appExitDiagnostics")
        self.trigger = text(status, "appExitTriggerMessage")
        self.trigger_task = (
            text(status, "appExitTriggerTaskRoleName"),
            number(status, "appExitTriggerTaskIndex") or 0,
        )
        self.virtual_cluster = text(status, "virtualCluster")
        self.tasks: list[Task] = []
        for role, group in mapping_at(raw, "taskRoles").items():
            statuses = group.get("taskStatuses") if isinstance(group, dict) else None
            for task in statuses if isinstance(statuses, list) else []:
                if isinstance(task, dict):
                    self.tasks.append(Task(role, task))
        for one in self.tasks:  # only the job reports it, for the task that triggered its end
            if one.origin_exit_code is None and (one.role, one.index) == self.trigger_task:
                one.origin_exit_code = self.origin_exit_code

    @property
    def is_finished(self) -> bool:
        return self.state in FINAL_STATES

    def __getitem__(self, key: str) -> object:
        return self.raw[key]

    def __repr__(self) -> str:
        return f"<job {self.user}~{self.name}: {self.state}>"


def is_pending_event(raw: Mapping[str, object]) -> bool:
    """Whether an event tells why its job is pending. Kubernetes' events (OpenPAI's) have no flag."""
    return bool(raw.get("pending", text(raw, "reason") == "FailedScheduling"))


def _iso_time_ms(time: str) -> int | None:
    """Milliseconds since 1970 of an ISO 8601 time; None if it is missing or malformed."""
    if not time:
        return None
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(time).timestamp() * 1000)
    except ValueError:
        return None


class Event:
    """An event of a job. ``is_pending``: it tells why the job is pending; ``last_ms``: its last time."""

    __slots__ = ("count", "is_pending", "kind", "last_ms", "message", "raw", "reason")

    def __init__(self, raw: dict[str, object]):
        self.raw = raw
        self.kind = text(raw, "type")
        self.reason = text(raw, "reason")
        self.message = text(raw, "message")
        self.is_pending = is_pending_event(raw)
        self.count = number(raw, "count") or 1
        self.last_ms = _iso_time_ms(text(raw, "lastTimestamp"))

    def __repr__(self) -> str:
        return f"<event {self.reason}: {self.message}>"


class VirtualCluster:
    """A virtual cluster. Resources are None if the cluster does not report them."""

    __slots__ = ("name", "raw")

    def __init__(self, name: str, raw: dict[str, object]):
        self.name = name
        self.raw = raw

    def __repr__(self) -> str:
        free = {name: self.available(*keys) for name, keys in RESOURCES.items()}
        return f"<virtual cluster {self.name}: {free}>"

    def total(self, *names: str) -> int | None:
        return _first(mapping_at(self.raw, "resourcesTotal"), names)

    def available(self, *names: str) -> int | None:
        """Total minus used of one resource; ``names``: its names in the API generations."""
        total, used = self.total(*names), _first(mapping_at(self.raw, "resourcesUsed"), names)
        return None if total is None else total - (used or 0)


GPUS = ("gpu", "GPUs")
CORES = ("cpu", "vCores")
MEMORY = ("memory",)
RESOURCES = {"GPUs": GPUS, "vCores": CORES, "memory": MEMORY}


def _first(raw: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    return next((n for n in (number(raw, name) for name in names) if n is not None), None)
