"""From a PaddleCloud job to a version 2 job: roles master, pserver and trainer, and their environment.

Each role runs `pai-runtime paddle`, the launcher, with the variables that PaddleCloud sets. The launcher adds
what only the task knows: its peers, its index, and the folder of the package.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from paicluster.api.paddlecloud.job_request import PaddleJob, memory_mb
from paiprotocol.jobs.images import NO_IMAGE

MASTER, PSERVER, TRAINER = "master", "pserver", "trainer"
STORED_PACKAGE = "PAI_PADDLE_PACKAGE"
"""Variable that tells the launcher (`pairuntime.task.paddle_launcher`) where the package is stored."""
PACKAGE_COPY = "PAI_PADDLE_PACKAGE_COPY"
"""Variable with the path of the job's own copy of the package, as PaddleCloud writes it."""
EXTRAS_KEY = "paddlecloud"
PORT_LABEL = "paddle"
"""Label of the ports of a task: the first is the one it listens on, the second that for sparse updates."""

_PORT = 7164
_MASTER_CPU, _MASTER_MEMORY_MB = 1, 300
_GPU_LIBRARIES = "/usr/local/nvidia/lib64"
_IMAGE = "image"
_REGISTRY_SECRET = "registry_password"


class RegistryCredentials(msgspec.Struct, frozen=True):
    """Credentials of an image's registry."""

    username: str
    password: str
    server: str


def translate(
    job: PaddleJob,
    user: str,
    *,
    stored_package: str,
    virtual_cluster: str,
    login: RegistryCredentials | None = None,
    environment: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The version 2 job, not yet validated.

    ``stored_package``: path of the package on the cluster's storage. ``environment``: that of the submitting
    shell.
    """
    places = {STORED_PACKAGE: stored_package}
    if job.package_copy:
        places[PACKAGE_COPY] = job.package_copy
    image: dict[str, Any] = {"name": _IMAGE, "type": "dockerimage", "uri": job.image or NO_IMAGE}
    translated: dict[str, Any] = {
        "protocolVersion": 2,
        "name": job.name,
        "type": "job",
        "prerequisites": [image],
        "taskRoles": _roles(job, {**variables(job, user), **places}),
        "defaults": {"virtualCluster": virtual_cluster},
        "extras": {
            "submitFrom": "paddlecloud",
            "gangAllocation": not job.faulttolerant,
            EXTRAS_KEY: msgspec.to_builtins(job),
        },
    }
    if environment:
        translated["extras"]["openpaisdk"] = {"environment": dict(environment)}
    if login is not None:
        image["auth"] = {
            "username": login.username,
            "password": f"<% $secrets.{_REGISTRY_SECRET} %>",
            "registryuri": login.server,
        }
        translated["secrets"] = {_REGISTRY_SECRET: login.password}
    return translated


def namespace_of(user: str) -> str:
    """The user's namespace, as PaddleCloud names it after the e-mail address of an account."""
    return re.sub(r"[@._]", "-", user)


def variables(job: PaddleJob, user: str) -> dict[str, str]:
    """Variables of all roles."""
    return {
        "PADDLE_JOB_NAME": job.name,
        "TRAINERS": str(job.parallelism),
        "PSERVERS": str(job.pservers),
        "TOPOLOGY": job.topology,
        "ENTRY": job.entry,
        "TRAINER_PACKAGE": job.job_package,
        "PADDLE_INIT_PORT": str(_PORT),
        "PADDLE_INIT_TRAINER_COUNT": str(job.gpu or job.cpu),
        "PADDLE_INIT_PORTS_NUM": "1",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(job.parallelism),
        "PADDLE_INIT_NUM_PASSES": str(job.passes),
        "PADDLE_INIT_USE_GPU": "1" if job.gpu else "0",
        "NAMESPACE": namespace_of(user),
        "PADDLE_CLOUD_CURRENT_DATACENTER": job.datacenter,
        "PADDLE_CLOUD_USERNAME": user,
    }


def _roles(job: PaddleJob, environment: Mapping[str, str]) -> dict[str, Any]:
    """The roles in the order in which PaddleCloud creates them.

    Without fault tolerance one failed task fails the job, and it is done when all trainers are. With it a
    failed task is restarted as often as there are trainers; the job fails when all trainers have, and the
    other roles end by themselves when no trainer is left.
    """
    tolerant = job.faulttolerant
    exports = _exports(job, environment)
    retries = job.parallelism if tolerant else 0

    def role(
        instances: int, resources: dict[str, Any], command: str, min_failed: int, min_succeeded: int
    ) -> dict[str, Any]:
        return {
            "instances": instances,
            "dockerImage": _IMAGE,
            "completion": {"minFailedInstances": min_failed, "minSucceededInstances": min_succeeded},
            "taskRetryCount": retries,
            "resourcePerInstance": resources,
            "commands": [*exports, f"exec pai-runtime paddle {command}"],
        }

    roles: dict[str, Any] = {}
    if tolerant:
        resources = _resources(_MASTER_CPU, _MASTER_MEMORY_MB)
        roles[MASTER] = role(1, resources, "start_master", 1, -1)
    if job.pservers:
        command = "start_new_pserver" if tolerant else "start_pserver"
        resources = _resources(job.pscpu, memory_mb(job.psmemory))
        roles[PSERVER] = role(job.pservers, resources, command, 1, -1)
    command = "start_new_trainer" if tolerant else f"start_trainer {'v1' if job.is_v1 else 'v2'}"
    resources = _resources(job.cpu, memory_mb(job.memory), job.gpu)
    roles[TRAINER] = role(
        job.parallelism,
        resources,
        command,
        job.parallelism if tolerant else 1,
        -1 if tolerant else job.parallelism,
    )
    return roles


def _resources(cpu: int, memory: int, gpu: int = 0) -> dict[str, Any]:
    return {"cpu": cpu, "memoryMB": memory, "gpu": gpu, "ports": {PORT_LABEL: 2}}


def _exports(job: PaddleJob, environment: Mapping[str, str]) -> list[str]:
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    if job.gpu:
        exports.append(f'export LD_LIBRARY_PATH="{_GPU_LIBRARIES}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')
    return exports
