"""Launch spec: what the engine gets for each task of a placed gang: script, environment, secrets, mounts."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paicluster.controller.job_record import JobRecord, placement_of, ports_of
from paicluster.controller.mountable_storages import MountableStorage, mounts_of
from paicluster.controller.storage_credentials import (
    CloudStorage,
    secret_values,
    storage_mounts,
    storage_variables,
)
from paicluster.engines.common.task_files import SAVE_ENVIRONMENT
from paicluster.engines.interface import (
    Mount,
    OutputUpload,
    Placeholders,
    RegistryLogin,
    StorageMount,
    TaskLaunch,
)
from paicluster.store.rows import JobRow, TaskRow
from paiprotocol.jobs import JobSpec, TaskRole, render_secrets, secret_texts, task_scripts
from paiprotocol.jobs.images import NO_IMAGE, unused_images
from paiprotocol.jobs.storage_layout import output_folder
from paiprotocol.jobs.task_environment import GangEnvironment, TaskPlacement

# Image name of jobs that run without an image.
CODE_DIR_IN_WORK_DIR = (
    "The code is not in /pai/code, because tasks without containers share one file system: "
    "PAI_CODE_DIR has its path, and the working folder a copy of it, as in OpenPAI, and of its contents."
)


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """Settings of the cluster that every launch uses."""

    # Variables of the account (HOME, USER, PATH, LANG, ...): an allow-list, not all of the server's.
    base_environment: Mapping[str, str]
    rest_server_uri: str
    sources: Path
    # On the embedded cluster the submitting shell's PATH and virtual environment apply.
    keep_submitted_environment: bool
    unseal: Callable[[bytes, str], bytes]
    # Token of a job's current attempt.
    job_token: Callable[[JobRow], str]
    # HDFS URI of the cluster's own storage.
    default_fs_uri: str = ""
    # Storages that are folders on the nodes.
    folders: tuple[MountableStorage, ...] = ()
    # Storages in a cloud.
    cloud_storages: tuple[CloudStorage, ...] = ()
    # Whether the cluster has an SSH endpoint.
    serves_ssh: bool = False

    def with_defaults(self, names: Collection[str]) -> LaunchSettings:
        """The settings for a user whose groups have these storages as defaults, too."""
        return replace(
            self,
            folders=tuple(replace(each, default=each.default or each.name in names) for each in self.folders),
            cloud_storages=tuple(
                replace(each, default=each.default or each.name in names) for each in self.cloud_storages
            ),
        )


@dataclass(frozen=True, slots=True)
class _RoleLaunch:
    """What all tasks of a role have in common."""

    script: str
    image: str | None
    login: RegistryLogin | None
    shm_mb: int | None
    gpu_count: int


@dataclass(frozen=True, slots=True)
class _GangLaunch:
    """What all tasks that are launched together have in common."""

    environment: GangEnvironment
    placeholders: Mapping[str, Placeholders]
    token: str
    # Texts that are masked in logs.
    secrets: tuple[str, ...]
    sources: Path | None
    mounts: tuple[Mount, ...]
    storage_mounts: tuple[StorageMount, ...]


def wants_image(job: JobSpec) -> bool:
    return any(_image(role) for role in job.task_roles)


def image_warnings(record: JobRecord) -> list[str]:
    """Warnings about images on a cluster that runs tasks without containers."""
    warning = unused_images(role.image_uri or "" for role in record.job.task_roles)
    return [warning] if warning else []


def build_launch(record: JobRecord, settings: LaunchSettings, uids: Sequence[str]) -> list[TaskLaunch]:
    """Everything the engine needs to start these tasks of the current attempt."""
    secrets: dict[str, object] = {}
    if record.sealed is not None:
        secrets = json.loads(settings.unseal(record.sealed, record.row.framework))
    scripts = task_scripts(record.job, secrets, after_pre_commands=SAVE_ENVIRONMENT)
    roles = {
        role.name: _role_launch(role, record.job, secrets, scripts[role.name])
        for role in record.job.task_roles
    }
    gang = _gang_launch(record, settings, uids, secrets)
    tasks = (record.tasks[uid] for uid in uids)
    return [_task_launch(task, record, settings, roles[task.role], gang) for task in tasks]


def _role_launch(role: TaskRole, job: JobSpec, secrets: Mapping[str, object], script: str) -> _RoleLaunch:
    return _RoleLaunch(
        script=script,
        image=_image(role),
        login=_login(role, job, secrets),
        shm_mb=role.shm_mb,
        gpu_count=role.resources.gpu,
    )


def _gang_launch(
    record: JobRecord, settings: LaunchSettings, uids: Sequence[str], secrets: Mapping[str, object]
) -> _GangLaunch:
    job = record.job
    roles = {role.name: role for role in job.task_roles}
    # A task without a node is placed by its engine: values that depend on the node are placeholders.
    placeholders = {
        uid: _placeholders(number, roles[record.tasks[uid].role])
        for number, uid in enumerate(uids)
        if not record.tasks[uid].node
    }
    placements = [
        _placeholder_placement(task, placeholders[task.uid])
        if task.uid in placeholders
        else placement_of(task)
        for task in record.peers(placeholders)
    ]
    token = settings.job_token(record.row)
    user, delegated = record.row.username, bool(placeholders)
    cloud = storage_variables(job, user, settings.cloud_storages)
    storages = storage_mounts(job, user, settings.cloud_storages)
    extra = {
        **settings.base_environment,
        **cloud,
        **{mount.variable: mount.target for mount in storages},
        "PYTHONUNBUFFERED": "1",
        "PAI_REST_SERVER_URI": settings.rest_server_uri,
        "PAI_USER_TOKEN": token,
    }
    if settings.keep_submitted_environment:
        extra["PAI_EMBEDDED_CLUSTER"] = "1"
        extra.update(job.additions.environment)
    sources = job.additions.sources
    return _GangLaunch(
        environment=GangEnvironment(
            job,
            user=user,
            placements=placements,
            attempt=record.row.attempt,
            default_fs_uri=settings.default_fs_uri,
            extra=extra,
        ),
        placeholders=placeholders,
        token=token,
        secrets=(*secret_texts(secrets), *secret_values(cloud), token),
        sources=None if sources is None else settings.sources / f"{sources.sha256}.tar",
        mounts=mounts_of(job, user, settings.folders, delegated=delegated),
        storage_mounts=storages,
    )


def _task_launch(
    task: TaskRow, record: JobRecord, settings: LaunchSettings, role: _RoleLaunch, gang: _GangLaunch
) -> TaskLaunch:
    job, row = record.job, record.row
    return TaskLaunch(
        uid=task.uid,
        node=task.node or "",
        script=role.script,
        environment=gang.environment.for_task(task.role, task.task_index),
        shared_environment=gang.environment.common,
        secrets=gang.secrets,
        sources=gang.sources,
        image=role.image,
        login=role.login,
        cpu=int(task.cpu),
        memory_mb=task.memory_mb,
        shm_mb=role.shm_mb,
        gpus=tuple(json.loads(task.gpus or "[]")),
        gpu_count=role.gpu_count,
        ports=ports_of(task),
        mounts=gang.mounts,
        storage_mounts=gang.storage_mounts,
        output_upload=OutputUpload(
            f"{settings.rest_server_uri}/webhdfs/v1",
            gang.token,
            output_folder(job, row.username, task.role, task.task_index),
            job.additions.outputs,
        ),
        time_limit_s=job.additions.time_limit_s,
        owner=row.username,
        vc=row.vc,
        job=row.name,
        tasks_per_node=job.additions.tasks_per_node,
        options=job.additions.engine_options,
        placeholders=gang.placeholders.get(task.uid),
    )


def _image(role: TaskRole) -> str | None:
    return role.image_uri if role.image_uri and role.image_uri != NO_IMAGE else None


def _login(role: TaskRole, job: JobSpec, secrets: Mapping[str, object]) -> RegistryLogin | None:
    image = job.prerequisite("dockerimage", role.docker_image) if role.docker_image else None
    if image is None or not image.auth:
        return None
    auth = {name: render_secrets(str(value), secrets) for name, value in image.auth.items()}
    return RegistryLogin(auth.get("username", ""), auth.get("password", ""), auth.get("registryuri", ""))


def _placeholders(number: int, role: TaskRole) -> Placeholders:
    """Placeholders about as long as the values: a command line that fits with them fits with the values."""
    ports = {
        label: tuple(f"%pai.{number}.{position}.{index}%" for index in range(count))
        for position, (label, count) in enumerate(role.resources.ports.items())
    }
    return Placeholders(f"%pai.{number}.ip%", ports, f"%pai.{number}.gpus%")


def _placeholder_placement(task: TaskRow, values: Placeholders) -> TaskPlacement:
    return TaskPlacement(
        task.role, task.task_index, values.ip, values.ports, task.uid, (values.gpus,), task.task_attempt
    )
