"""Rows as the JSON shapes of version 1: what version 2 shows, less what came later."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from openpaisdk.protocol.states import job_state
from paicluster.api.v2 import job_detail as details
from paicluster.store.jobs import ListPage
from paicluster.store.rows import AttemptRow, JobRow, TaskRow

_STATUS = (
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
    """A page of jobs, always an array."""
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
                "containerGpus": _bits(task.gpus),
                "containerLog": log(task),
            }
        )
    whole = details.job_status(row, attempt)
    status = {key: whole[key] for key in _STATUS}
    return {"name": row.name, "jobStatus": status, "taskRoles": roles}


def _bits(gpus: str | None) -> int | None:
    """GPU ids as the bits of one number."""
    return None if gpus is None else sum(1 << number for number in json.loads(gpus))


def virtual_cluster(
    vc: dict[str, Any], running: int, waiting: int, addresses: Sequence[str], status: str
) -> dict[str, Any]:
    """What version 2 says of a virtual cluster, with the jobs and the nodes that version 1 wants to see."""
    used, total = (
        {key: vc[which][key] for key in ("memory", "vCores", "GPUs")}
        for which in ("resourcesUsed", "resourcesTotal")
    )
    return {
        "capacity": vc["capacity"],
        "maxCapacity": vc["maxCapacity"],
        "usedCapacity": vc["usedCapacity"],
        "numActiveJobs": running,
        "numJobs": running + waiting,
        "numPendingJobs": waiting,
        "resourcesUsed": used,
        "resourcesTotal": total,
        "dedicated": vc["dedicated"],
        "nodeList": list(addresses),
        "status": status,
    }
