"""Database rows as JSON of version 1: version 2 without the later fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from openpaisdk.protocol.states import job_state
from paicluster.api.v2 import job_detail as details
from paicluster.store.jobs import ListPage
from paicluster.store.rows import AttemptRow, JobRow, TaskRow

_STATUS_FIELDS = (
    "username", "virtualCluster", "state", "subState", "createdTime", "completedTime", "executionType",
    "retries", "retryDetails", "appId", "appProgress", "appTrackingUrl", "appLaunchedTime",
    "appCompletedTime", "appExitCode", "appExitSpec", "appExitTriggerMessage", "appExitTriggerTaskRoleName",
    "appExitTriggerTaskIndex", "appExitDiagnostics", "appExitMessages", "appExitType",
)  # fmt: skip


class _Summary(msgspec.Struct):
    """The fields of a JobSummary that version 1 has."""

    name: str
    username: str
    state: str
    subState: str  # noqa: N815
    executionType: str  # noqa: N815
    retries: int
    retryDetails: msgspec.Raw  # noqa: N815
    createdTime: int  # noqa: N815
    completedTime: int | None  # noqa: N815
    appExitCode: int | None  # noqa: N815
    virtualCluster: str  # noqa: N815
    totalGpuNumber: int  # noqa: N815
    totalTaskNumber: int  # noqa: N815
    totalTaskRoleNumber: int  # noqa: N815


_read_summaries = msgspec.json.Decoder(list[_Summary]).decode
_encode = msgspec.json.Encoder().encode


def summaries(page: ListPage) -> bytes:
    """A page of jobs as a JSON array."""
    return _encode(_read_summaries(b"[%b]" % page.json))


def job_detail(
    row: JobRow, attempt: AttemptRow | None, tasks: Sequence[TaskRow], log: Callable[[TaskRow], str]
) -> dict[str, Any]:
    roles: dict[str, Any] = {}
    for task in tasks:
        role = roles.setdefault(task.role, {"taskRoleStatus": {"name": task.role}, "taskStatuses": []})
        role["taskStatuses"].append(
            {
                "taskIndex": task.task_index,
                "taskState": job_state(task.sub_state, task.exit_code),
                "containerId": task.uid,
                "containerIp": task.ip,
                "containerPorts": details.port_lists(task.ports),
                "containerExitCode": task.exit_code,
                "containerGpus": _gpu_mask(task.gpus),
                "containerLog": log(task),
            }
        )
    v2_status = details.job_status(row, attempt)
    status = {key: v2_status[key] for key in _STATUS_FIELDS}
    return {"name": row.name, "jobStatus": status, "taskRoles": roles}


def _gpu_mask(gpus: str | None) -> int | None:
    """GPU ids as a bit mask."""
    return None if gpus is None else sum(1 << number for number in json.loads(gpus))


def virtual_cluster(
    vc: dict[str, Any], running: int, pending: int, addresses: Sequence[str], status: str
) -> dict[str, Any]:
    """Version 2's JSON of a virtual cluster, with version 1's numbers of jobs and addresses of nodes."""
    used, total = (
        {key: vc[field][key] for key in ("memory", "vCores", "GPUs")}
        for field in ("resourcesUsed", "resourcesTotal")
    )
    return {
        "capacity": vc["capacity"],
        "maxCapacity": vc["maxCapacity"],
        "usedCapacity": vc["usedCapacity"],
        "numActiveJobs": running,
        "numJobs": running + pending,
        "numPendingJobs": pending,
        "resourcesUsed": used,
        "resourcesTotal": total,
        "dedicated": vc["dedicated"],
        "nodeList": list(addresses),
        "status": status,
    }
