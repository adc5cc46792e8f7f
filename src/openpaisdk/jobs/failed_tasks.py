"""Tasks of an array that did not succeed, and the job that runs only them again.

That job has one row of values for each of them, and in it the index that the task had in the array: the
shell of the task sets ``PAI_TASK_INDEX`` to it, so that commands see what they saw before. Among the tasks of
its own job a task has the number of its row (``PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX``).
"""

from __future__ import annotations

from openpaisdk.jobs.call_request import request_in
from openpaisdk.jobs.deployment_commands import change_pre_commands, pre_commands_of
from openpaisdk.jobs.storage_upload import stored_sources
from openpaisdk.jobs.task_array import RowArray, array_of_job
from paiprotocol.errors import NotFound, UsageError
from paiprotocol.jobs.array_columns import TASK_INDEX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobStatus

_ENDED = ("FAILED", "STOPPED")


def failed_tasks(config: Mapping[str, Any], job: JobStatus, *, now: bool = False) -> list[int]:
    """The indexes of the tasks that did not succeed; with ``now`` also of a job that has not finished, and
    then without those that may still succeed.
    """
    _check_array(config, job.name)
    if not job.is_finished and not now:
        raise UsageError(
            f"{job.name} is {job.state}: more of its tasks may fail.",
            hint=f"Wait for its end with pai wait {job.name}, or add --now (in Python now=True): "
            "then those that have failed until now run again.",
        )
    if job.is_finished and not job.tasks:  # it was stopped before it started
        return list(range(_instances(config)))
    return sorted(
        task.index
        for task in job.tasks
        if (task.state != "SUCCEEDED" if job.is_finished else task.state in _ENDED)
    )


def _check_array(config: Mapping[str, Any], name: str) -> None:
    if request_in(config) is not None:
        raise UsageError(
            f"The tasks of {name} call a Python function: which calls failed is known where they were made.",
            hint="Call it again for the items whose future has an exception: openpaisdk.map(function, ...).",
        )
    extras = config.get("extras")
    if len(_roles(config)) != 1 or not isinstance(extras, dict) or extras.get("gangAllocation", True):
        raise UsageError(
            f"{name} is no array: its tasks start together, and none of them runs without the others.",
            hint=f"Run all of it again with: pai resubmit {name}",
        )


def check_files(cluster: ClusterClient, config: Mapping[str, Any], job: JobStatus) -> None:
    """Refuse a copy whose files the cluster has no longer, before anything is submitted.

    The files of another user's job cannot be asked for.
    """
    if job.user == cluster.user and not _has_files(cluster, config):
        raise NotFound(
            f"The files that {job.name} ran with are no longer on the cluster {cluster.alias}: nothing is "
            "submitted.",
            hint="In the folder with the files, add --sources . (in Python sources=['.']).",
        )


def _has_files(cluster: ClusterClient, config: Mapping[str, Any]) -> bool:
    extras = config.get("extras")
    additions = extras.get("openpaisdk") if isinstance(extras, dict) else None
    sources = additions.get("sources") if isinstance(additions, dict) else None
    if isinstance(sources, dict):
        return cluster.has_sources(str(sources.get("sha256")))
    paths = [path for line in pre_commands_of(config) if (path := stored_sources(line))]
    if not paths:
        return True
    from openpaisdk.storage import Storage

    storage = Storage.of_jobs(cluster)
    return all(map(storage.exists, paths))


def repeat_tasks(job: Mapping[str, Any], indexes: Sequence[int]) -> dict[str, Any]:
    """The job as one that runs only these of its tasks, with the values and the indexes that they had."""
    array = array_of_job(job)
    rows = [array.values_of(index) if array else {} for index in indexes]
    # Of a job that repeats tasks already, the first indexes count.
    first = [row.get(TASK_INDEX) or str(index) for row, index in zip(rows, indexes, strict=True)]
    names = [name for name in (array.variables if array else ()) if name != TASK_INDEX]
    columns = {TASK_INDEX: first, **{name: [row.get(name, "") for row in rows] for name in names}}
    repeated = RowArray(columns)
    replaced = array.export_commands() if array else []

    def replace(commands: list[str]) -> list[str]:
        # Commands that the job does not have as they were made compute their values from the first index.
        old = replaced if all(command in commands for command in replaced) else []
        at = commands.index(old[0]) if old else 0
        kept = [command for command in commands if command not in old]
        return [*kept[:at], *repeated.export_commands(), *kept[at:]]

    (name, role), *_ = _roles(job).items()
    changed = change_pre_commands(
        {**job, "taskRoles": {name: {**role, "instances": len(indexes)}}}, [name], replace
    )
    extras = dict(changed.get("extras") or {})
    additions = {key: value for key, value in (extras.get("openpaisdk") or {}).items() if key != "array"}
    changed["extras"] = {**extras, "openpaisdk": {**additions, RowArray.key: repeated.variables}}
    return changed


def _roles(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    roles = config.get("taskRoles")
    return roles if isinstance(roles, dict) else {}


def _instances(config: Mapping[str, Any]) -> int:
    return sum(int(role.get("instances", 1)) for role in _roles(config).values())
