"""Version 1 to version 2: one function, and what it cannot carry over is said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openpaisdk.protocol.model import JobSpec
from openpaisdk.protocol.problems import Problem, protocol_error, shorten
from openpaisdk.protocol.template import as_text
from openpaisdk.protocol.v1 import JobV1, TaskRoleV1, read_job_v1
from openpaisdk.protocol.v2_reader import read_job

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
    """A version 1 job in version 2: as plain data, as a typed job, and what changed on the way."""

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
    """The version 2 job that does what this version 1 job does.

    - The image becomes the prerequisite ``default``; ``dataDir``, ``outputDir`` and ``codeDir``, where given,
      prerequisites ``default`` of type data, output and script, with path variables replaced when ``user``
      is known. Tasks find them in ``PAI_DATA_DIR``, ``PAI_OUTPUT_DIR`` and ``PAI_CODE_DIR`` as before.
    - ``auth`` is the content of ``authFile``: registry, user and password on a line each. The password
      becomes the secret ``registry``.
    - ``minFailedTaskCount: null`` (no number of failures fails the job) and ``minSucceededTaskCount`` null or
      absent (all tasks must end) become -1, which says just that in version 2.
    - ``jobEnvs`` become ``export`` lines of the deployment ``default``, values as they are.
    - Names that version 2 does not allow (a job or role with ``.`` or ``~``) get ``_`` in those places.
    - ``retryCount`` -1 and -2 are carried over; only a stored job may have them: ``read_job(stored=True)``.
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
        notes.append(
            Problem(("authFile",), "was not read, so a private image cannot be pulled", level="note")
        )
    names = _role_names(job, notes)
    data["taskRoles"] = {
        names[role.name]: _role(role, job, index, notes) for index, role in enumerate(job.task_roles)
    }
    for role in data["taskRoles"].values():
        role.update({kind: "default" for name, kind, _ in _DIRECTORIES if paths[name]})
    exports = _exports(job, paths)
    if exports:
        around = {name: {"preCommands": list(exports)} for name in data["taskRoles"]}
        data["deployments"] = [{"name": "default", "taskRoles": around}]
    data["defaults"] = {"virtualCluster": job.virtual_cluster}
    if exports:
        data["defaults"]["deployment"] = "default"
    if job.gpu_type:
        notes.append(Problem(("gpuType",), "has no place in version 2 and is left out", level="note"))
    if job.extras:
        data["extras"] = dict(job.extras)
    return Conversion(data, read_job(data, file=file, stored=True), tuple(notes))


def name_in_v2(job_name: str) -> str:
    """What a version 1 job is called in version 2, which allows fewer letters."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", job_name)


def _job_name(job: JobV1, notes: list[Problem]) -> str:
    name = name_in_v2(job.job_name)
    if name != job.job_name:
        message = f'version 2 has no name "{shorten(job.job_name)}"; it becomes "{shorten(name)}"'
        notes.append(Problem(("jobName",), message, level="note"))
    return name


def _legal(names: Iterable[str]) -> dict[str, str]:
    """Each name as version 2 allows it, kept apart where two become the same."""
    legal: dict[str, str] = {}
    for name in names:
        wish = re.sub(r"[^a-zA-Z0-9_]", "_", name)
        wish = f"_{wish}" if wish[0].isdigit() else wish
        while wish in legal.values():
            wish += "_"
        legal[name] = wish
    return legal


def _role_names(job: JobV1, notes: list[Problem]) -> dict[str, str]:
    legal = _legal(role.name for role in job.task_roles)
    for index, role in enumerate(job.task_roles):
        if legal[role.name] != role.name:
            message = (
                f'version 2 has no role name "{shorten(role.name)}"; it becomes "{shorten(legal[role.name])}"'
            )
            notes.append(Problem(("taskRoles", index, "name"), message, level="note"))
    return legal


def _paths(job: JobV1, user: str, default_fs_uri: str) -> dict[str, str]:
    given = {"dataDir": job.data_dir, "outputDir": job.output_dir, "codeDir": job.code_dir}
    if not user:
        return given
    return {
        name: job.path(name, user=user, default_fs_uri=default_fs_uri) if text or name == "outputDir" else ""
        for name, text in given.items()
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
    labels = _legal(label for label, _, _ in role.ports)
    for place, (label, begin, _) in enumerate(role.ports):
        if begin:
            message = f'the port "{shorten(label)}" cannot be fixed at {begin}: the cluster chooses it'
            notes.append(Problem(("taskRoles", index, "portList", place, "beginAt"), message, level="note"))
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
        # Only our own clusters have this; on others the runtime of the cluster does it.
        lines.append(_FETCH_CODE)
    for name, value in job.job_envs.items():
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            lines.append(f"export {name}={_single_quoted(as_text(value))}")
    return lines


def _double_quoted(text: str) -> str:
    """In double quotes with only the path variables left for the shell to replace."""
    escaped = re.sub(r'[\\"`]|\$(?!PAI_(?:DEFAULT_FS_URI|JOB_NAME|USER_NAME|USERNAME)\b)', r"\\\g<0>", text)
    return f'"{escaped}"'


def _single_quoted(text: str) -> str:
    # A quote inside ends the text, adds one that is escaped, and begins again. "<%" is split for the same
    # price: version 1 has no templates, so a value must not turn into one.
    return "'" + text.replace("'", "'\\''").replace("<%", "<''%") + "'"
