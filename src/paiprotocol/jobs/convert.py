"""Conversion of version 1 jobs to version 2, with notes on what is lost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paiprotocol.jobs.limits import ExpansionBudget
from paiprotocol.jobs.model import JobSpec
from paiprotocol.jobs.problems import Problem, protocol_error, shorten
from paiprotocol.jobs.template import as_text
from paiprotocol.jobs.v1 import JobV1, TaskRoleV1, read_job_v1
from paiprotocol.jobs.v2_reader import read_job

_DIRECTORIES = (
    ("dataDir", "data", "PAI_DATA_DIR"),
    ("outputDir", "output", "PAI_OUTPUT_DIR"),
    ("codeDir", "script", "PAI_CODE_DIR"),
)


_FETCH_CODE = (
    "if command -v pai-runtime >/dev/null 2>&1; then "
    'pai_code=$(pai-runtime code "$PAI_CODE_DIR"); eval "$pai_code"; fi'
)


@dataclass(frozen=True, slots=True)
class Conversion:
    """Result of a conversion: the version 2 job as plain data and typed, and notes on what changed."""

    data: dict[str, Any] = field(repr=False)
    job: JobSpec
    warnings: tuple[Problem, ...]


def convert_v1(
    source: JobV1 | str | bytes | Mapping[str, Any],
    *,
    user: str = "",
    default_fs_uri: str = "",
    auth: str | None = None,
    file: str | None = None,
) -> Conversion:
    """Convert a version 1 job to the equivalent version 2 job.

    - The image becomes the prerequisite ``default``; ``dataDir``, ``outputDir`` and ``codeDir``, where given,
      prerequisites ``default`` of type data, output and script, with path variables replaced if ``user`` is
      known. Tasks find them in ``PAI_DATA_DIR``, ``PAI_OUTPUT_DIR`` and ``PAI_CODE_DIR`` as before.
    - ``auth`` is the content of ``authFile``: registry, user and password on a line each. The password
      becomes the secret ``registry``.
    - ``minFailedTaskCount: null`` (no number of failures fails the job) and ``minSucceededTaskCount`` null or
      absent (all tasks must end) become -1, which means the same in version 2.
    - ``jobEnvs`` become ``export`` lines of the deployment ``default``, values unchanged.
    - Names that version 2 does not allow (a job or role with ``.`` or ``~``) get ``_`` in those places.
    - ``retryCount`` -1 and -2 are kept; only a stored job may have them: ``read_job(stored=True)``.
    """
    job = source if isinstance(source, JobV1) else read_job_v1(source, file=file)
    notes: list[Problem] = list(job.warnings)
    data: dict[str, Any] = {"protocolVersion": 2, "name": _job_name(job, notes), "type": "job"}
    if job.retry_count:
        data["jobRetryCount"] = job.retry_count
    paths = _paths(job, user, default_fs_uri)
    data["prerequisites"] = _prerequisites(job, paths)
    if auth is not None:
        _add_auth(data, auth)
    elif job.auth_file:
        notes.append(Problem(("authFile",), "is not read, so a private image cannot be pulled", level="note"))
    names = _role_names(job, notes)
    data["taskRoles"] = {
        names[role.name]: _role(role, job, index, notes) for index, role in enumerate(job.task_roles)
    }
    for role in data["taskRoles"].values():
        role.update({kind: "default" for name, kind, _ in _DIRECTORIES if paths[name]})
    exports = _exports(job, paths)
    # Each role gets a copy of the lines.
    ExpansionBudget().spend(len(data["taskRoles"]) * sum(map(len, exports)))
    if exports:
        pre_commands = {name: {"preCommands": list(exports)} for name in data["taskRoles"]}
        data["deployments"] = [{"name": "default", "taskRoles": pre_commands}]
    data["defaults"] = {"virtualCluster": job.virtual_cluster}
    if exports:
        data["defaults"]["deployment"] = "default"
    if job.gpu_type:
        notes.append(Problem(("gpuType",), "does not exist in version 2 and is dropped", level="note"))
    if job.extras:
        data["extras"] = dict(job.extras)
    return Conversion(data, read_job(data, file=file, stored=True), tuple(notes))


def name_in_v2(job_name: str) -> str:
    """Name of a version 1 job in version 2, which allows fewer characters."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", job_name)


def _job_name(job: JobV1, notes: list[Problem]) -> str:
    name = name_in_v2(job.job_name)
    if name != job.job_name:
        message = (
            f'the name "{shorten(job.job_name)}" is not valid in version 2; it becomes "{shorten(name)}"'
        )
        notes.append(Problem(("jobName",), message, level="note"))
    return name


def _legal_names(names: Iterable[str]) -> dict[str, str]:
    """Each name in a form that version 2 allows; names that would become equal stay distinct."""
    legal: dict[str, str] = {}
    used: set[str] = set()
    for name in names:
        candidate = re.sub(r"[^a-zA-Z0-9_]", "_", name)
        candidate = f"_{candidate}" if candidate[0].isdigit() else candidate
        while candidate in used:
            candidate += "_"
        legal[name] = candidate
        used.add(candidate)
    return legal


def _role_names(job: JobV1, notes: list[Problem]) -> dict[str, str]:
    legal = _legal_names(role.name for role in job.task_roles)
    for index, role in enumerate(job.task_roles):
        if legal[role.name] != role.name:
            new_name = shorten(legal[role.name])
            message = (
                f'the role name "{shorten(role.name)}" is not valid in version 2; it becomes "{new_name}"'
            )
            notes.append(Problem(("taskRoles", index, "name"), message, level="note"))
    return legal


def _paths(job: JobV1, user: str, default_fs_uri: str) -> dict[str, str]:
    paths = {"dataDir": job.data_dir, "outputDir": job.output_dir, "codeDir": job.code_dir}
    if not user:
        return paths
    return {
        name: job.path(name, user=user, default_fs_uri=default_fs_uri) if text or name == "outputDir" else ""
        for name, text in paths.items()
    }


def _prerequisites(job: JobV1, paths: dict[str, str]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"name": "default", "type": "dockerimage", "uri": job.image}]
    for name, kind, _ in _DIRECTORIES:
        if paths[name]:
            items.append(
                {"name": "default", "type": kind, "uri": [paths[name]] if kind == "data" else paths[name]}
            )
    return items


def _add_auth(data: dict[str, Any], auth: str) -> None:
    lines = [line.strip() for line in auth.splitlines() if line.strip()]
    if len(lines) != 3:
        message = "must have three lines: registry, user and password"
        raise protocol_error([Problem(("authFile",), message, found=f"{len(lines)} lines")])
    registry, username, password = lines
    data["prerequisites"][0]["auth"] = {
        "username": username,
        "password": "<% $secrets.registry %>",
        "registryuri": registry,
    }
    data["secrets"] = {"registry": password}


def _role(role: TaskRoleV1, job: JobV1, index: int, notes: list[Problem]) -> dict[str, Any]:
    labels = _legal_names(label for label, _, _ in role.ports)
    for position, (label, begin, _) in enumerate(role.ports):
        if begin:
            message = f'the port "{shorten(label)}" cannot be fixed at {begin}: the cluster assigns it'
            notes.append(
                Problem(("taskRoles", index, "portList", position, "beginAt"), message, level="note")
            )
    resources: dict[str, Any] = {"cpu": role.cpu_number, "memoryMB": role.memory_mb, "gpu": role.gpu_number}
    if labels:
        resources["ports"] = {labels[label]: count for label, _, count in role.ports}
    return {
        "instances": role.task_number,
        "completion": {
            "minFailedInstances": -1 if role.min_failed is None else role.min_failed,
            "minSucceededInstances": -1 if role.min_succeeded is None else role.min_succeeded,
        },
        "dockerImage": "default",
        "extraContainerOptions": {"shmMB": role.shm_mb},
        "resourcePerInstance": resources,
        "commands": [role.command],
    }


def _exports(job: JobV1, paths: dict[str, str]) -> list[str]:
    lines = [
        f"export {variable}={_double_quoted(paths[name])}"
        for name, _, variable in _DIRECTORIES
        if paths[name]
    ]
    if paths["codeDir"]:
        # Only our clusters have this command; on others the runtime of the cluster does it.
        lines.append(_FETCH_CODE)
    for name, value in job.job_envs.items():
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            lines.append(f"export {name}={_single_quoted(as_text(value))}")
    return lines


def _double_quoted(text: str) -> str:
    """Text in double quotes in which the shell expands only the path variables."""
    escaped = re.sub(r'[\\"`]|\$(?!PAI_(?:DEFAULT_FS_URI|JOB_NAME|USER_NAME|USERNAME)\b)', r"\\\g<0>", text)
    return f'"{escaped}"'


def _single_quoted(text: str) -> str:
    # A single quote inside closes the text, adds an escaped quote and reopens it. "<%" is split the same way:
    # version 1 has no templates, so a value must not become one.
    return "'" + text.replace("'", "'\\''").replace("<%", "<''%") + "'"
