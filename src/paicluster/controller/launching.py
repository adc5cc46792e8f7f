"""From a placed gang to what the engine is told: scripts, environments, secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openpaisdk.protocol import render_secrets, task_script
from openpaisdk.protocol.environment import GangEnvironment, TaskPlace
from paicluster.controller.record import Record
from paicluster.engines.interface import TaskLaunch
from paicluster.store.rows import JobRow

# The name by which a job says that it wants no image.
NO_IMAGE = "host"


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """What every task is given by this cluster."""

    # The account's own variables (HOME, USER, PATH, LANG, ...): an allow-list, never the server's all.
    base_environment: Mapping[str, str]
    rest_server_uri: str
    sources: Path
    # On a cluster of this machine the submitting shell's PATH and virtual environment hold.
    keep_submitted_environment: bool
    unseal: Callable[[bytes, str], bytes]
    # The token a job's current attempt carries.
    job_token: Callable[[JobRow], str]


def remarks_on(record: Record) -> list[str]:
    """What this cluster cannot do for the job, though it asks for it."""
    images = sorted({role.image_uri for role in record.job.task_roles if role.image_uri} - {NO_IMAGE})
    if not images:
        return []
    return [f"This cluster runs tasks without containers: {', '.join(images)} is not used."]


def gang_of(record: Record, settings: LaunchSettings, uids: Sequence[str]) -> list[TaskLaunch]:
    """Everything the engine needs to start these tasks of the current attempt."""
    job = record.job
    places = [
        TaskPlace(
            task.role,
            task.task_index,
            task.ip or "",
            {label: tuple(numbers) for label, numbers in json.loads(task.ports or "{}").items()},
            task.uid,
            tuple(json.loads(task.gpus or "[]")),
            task.task_attempt,
        )
        for task in record.tasks.values()
    ]
    secrets: dict[str, object] = {}
    if record.sealed is not None:
        secrets = json.loads(settings.unseal(record.sealed, record.row.framework))
    token = settings.job_token(record.row)
    extra = {
        **settings.base_environment,
        "PYTHONUNBUFFERED": "1",
        "PAI_REST_SERVER_URI": settings.rest_server_uri,
        "PAI_USER_TOKEN": token,
    }
    if settings.keep_submitted_environment:
        extra.update(job.additions.environment)
    gang = GangEnvironment(
        job, user=record.row.username, places=places, attempt=record.row.attempt, extra=extra
    )
    scripts = {role.name: task_script(role, job) for role in job.task_roles}
    if secrets:
        scripts = {name: render_secrets(text, secrets) for name, text in scripts.items()}
    masked = (*_secret_texts(secrets), token)
    sources = job.additions.sources
    bundle = None if sources is None else settings.sources / f"{sources.sha256}.tar"
    images = {role.name: role.image_uri for role in job.task_roles}
    return [
        TaskLaunch(
            uid=task.uid,
            node=task.node or "",
            script=scripts[task.role],
            environment=gang.for_task(task.role, task.task_index),
            shared_environment=gang.common,
            secrets=masked,
            sources=bundle,
            image=images[task.role],
            cpu=int(task.cpu),
            memory_mb=task.memory_mb,
            gpus=tuple(json.loads(task.gpus or "[]")),
            time_limit_s=job.additions.time_limit_s,
        )
        for task in (record.tasks[uid] for uid in uids)
    ]


def _secret_texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _secret_texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _secret_texts(item)]
    return []
