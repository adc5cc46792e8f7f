"""From a placed gang to what the engine is told: scripts, environments, secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openpaisdk.protocol import JobSpec, TaskRole, render_secrets, task_script
from openpaisdk.protocol.storage_layout import output_folder
from openpaisdk.protocol.task_environment import GangEnvironment, TaskPlacement
from paicluster.controller.job_record import JobRecord, place_of, ports_of
from paicluster.controller.storage_mounts import MountableStorage, mounts_of
from paicluster.engines.interface import OutputUpload, Placeholders, RegistryLogin, TaskLaunch
from paicluster.store.rows import JobRow, TaskRow

# The name by which a job says that it wants no image.
NO_IMAGE = "host"
CODE_BESIDE_WORK = (
    "The code does not lie in /pai/code, which tasks without containers cannot have each for itself: "
    "PAI_CODE_DIR says where it is, and a copy is in the working folder."
)


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
    # The cluster's own storage, as HDFS addresses are written.
    default_fs_uri: str = ""
    # Storages that are folders of the machines.
    folders: tuple[MountableStorage, ...] = ()


def wants_image(job: JobSpec) -> bool:
    return any(_image(role) for role in job.task_roles)


def image_warnings(record: JobRecord) -> list[str]:
    """What this cluster cannot do for the job, though it asks for it."""
    images = sorted({role.image_uri for role in record.job.task_roles if role.image_uri} - {NO_IMAGE})
    if not images:
        return []
    return [f"This cluster runs tasks without containers: {', '.join(images)} is not used."]


def build_launch(record: JobRecord, settings: LaunchSettings, uids: Sequence[str]) -> list[TaskLaunch]:
    """Everything the engine needs to start these tasks of the current attempt."""
    job = record.job
    roles = {role.name: role for role in job.task_roles}
    # Whoever is launched without a node gets a place from its engine: what follows from it is left blank.
    blanks = {
        uid: _placeholders(number, roles[record.tasks[uid].role])
        for number, uid in enumerate(uids)
        if not record.tasks[uid].node
    }
    places = [
        _blank_place(task, blanks[task.uid]) if task.uid in blanks else place_of(task)
        for task in record.peers(blanks)
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
        job,
        user=record.row.username,
        placements=places,
        attempt=record.row.attempt,
        default_fs_uri=settings.default_fs_uri,
        extra=extra,
    )
    scripts = {role.name: task_script(role, job) for role in job.task_roles}
    if secrets:
        scripts = {name: render_secrets(text, secrets) for name, text in scripts.items()}
    masked = (*_secret_texts(secrets), token)
    sources = job.additions.sources
    bundle = None if sources is None else settings.sources / f"{sources.sha256}.tar"
    logins = {role.name: _login(role, job, secrets) for role in job.task_roles}
    mounts = mounts_of(job, record.row.username, settings.folders, elsewhere=bool(blanks))
    return [
        TaskLaunch(
            uid=task.uid,
            node=task.node or "",
            script=scripts[task.role],
            environment=gang.for_task(task.role, task.task_index),
            shared_environment=gang.common,
            secrets=masked,
            sources=bundle,
            image=_image(roles[task.role]),
            login=logins[task.role],
            cpu=int(task.cpu),
            memory_mb=task.memory_mb,
            shm_mb=roles[task.role].shm_mb,
            gpus=tuple(json.loads(task.gpus or "[]")),
            gpu_count=roles[task.role].resources.gpu,
            ports=ports_of(task),
            mounts=mounts,
            output_upload=OutputUpload(
                f"{settings.rest_server_uri}/webhdfs/v1",
                token,
                output_folder(job, record.row.username, task.role, task.task_index),
                job.additions.outputs,
            ),
            time_limit_s=job.additions.time_limit_s,
            owner=record.row.username,
            vc=record.row.vc,
            job=record.row.name,
            options={"slurm": job.additions.slurm},
            placeholders=blanks.get(task.uid),
        )
        for task in (record.tasks[uid] for uid in uids)
    ]


def _image(role: TaskRole) -> str | None:
    return role.image_uri if role.image_uri and role.image_uri != NO_IMAGE else None


def _login(role: TaskRole, job: JobSpec, secrets: Mapping[str, object]) -> RegistryLogin | None:
    image = job.prerequisite("dockerimage", role.docker_image) if role.docker_image else None
    if image is None or not image.auth:
        return None
    said = {name: render_secrets(str(value), secrets) for name, value in image.auth.items()}
    return RegistryLogin(said.get("username", ""), said.get("password", ""), said.get("registryuri", ""))


def _placeholders(number: int, role: TaskRole) -> Placeholders:
    """About as long as what will stand there, so that what fits with them fits with the real ones."""
    ports = {
        label: tuple(f"%pai.{number}.{place}.{count}%" for count in range(wanted))
        for place, (label, wanted) in enumerate(role.resources.ports.items())
    }
    return Placeholders(f"%pai.{number}.ip%", ports, f"%pai.{number}.gpus%")


def _blank_place(task: TaskRow, blanks: Placeholders) -> TaskPlacement:
    return TaskPlacement(
        task.role, task.task_index, blanks.ip, blanks.ports, task.uid, (blanks.gpus,), task.task_attempt
    )


def _secret_texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _secret_texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _secret_texts(item)]
    return []
