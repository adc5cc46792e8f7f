"""Jobs of version 1 from database rows: those of version 2 without the later fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgspec

from paicluster.api.v2.job_detail import job_status, port_lists
from paicluster.api.wire.jobs import TaskRoleStatus
from paicluster.api.wire.v1 import JobDetailV1, JobStatusV1, JobSummaryV1, TaskRoleV1, TaskV1
from paicluster.store.jobs import ListPage
from paicluster.store.rows import AttemptRow, JobRow, TaskRow
from paiprotocol.jobs.states import job_state


class _StoredSummary(JobSummaryV1, forbid_unknown_fields=False):
    """Read from a summary of version 2, as the store has it."""


_decode_summaries = msgspec.json.Decoder(list[_StoredSummary]).decode


def summaries(page: ListPage) -> list[JobSummaryV1]:
    return list(_decode_summaries(b"[%b]" % page.summaries))


def job_detail(
    row: JobRow, attempt: AttemptRow | None, tasks: Sequence[TaskRow], log: Callable[[TaskRow], str]
) -> JobDetailV1:
    roles: dict[str, TaskRoleV1] = {}
    for task in tasks:
        role = roles.setdefault(task.role, TaskRoleV1(TaskRoleStatus(task.role), []))
        role.task_statuses.append(
            TaskV1(
                task_index=task.task_index,
                task_state=job_state(task.sub_state, task.exit_code),
                container_id=task.uid,
                container_ip=task.ip,
                container_ports=port_lists(task.ports),
                container_exit_code=task.exit_code,
                container_gpus=_gpu_mask(task.gpus),
                container_log=log(task),
            )
        )
    status = msgspec.convert(job_status(row, attempt), JobStatusV1, from_attributes=True)
    return JobDetailV1(row.name, status, roles)


def _gpu_mask(gpus: str | None) -> int | None:
    """GPU ids as a bit mask."""
    return None if gpus is None else sum(1 << number for number in json.loads(gpus))
