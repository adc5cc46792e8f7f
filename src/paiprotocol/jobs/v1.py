"""Version 1 jobs: schema and reader of JSON with comments and trailing commas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paiprotocol.jobs.document import Document, decode_text, read
from paiprotocol.jobs.problems import Problem, raise_on_errors, shorten
from paiprotocol.jobs.schema_nodes import Anything, Fields, Int, ListOf, MappingOf, Nullable, Text
from paiprotocol.jobs.storage_layout import default_output

PATH_FIELDS = ("authFile", "dataDir", "outputDir", "codeDir")
"""Fields in which path variables such as ``$PAI_USER_NAME`` are replaced."""

_LABEL = Text(pattern=r"[A-Za-z0-9._~-]+", form="letters, digits and . _ ~ -", max_length=255)

TASK_ROLE_V1 = Fields(
    {
        "name": Text(
            "Name of the role.",
            pattern=r"[A-Za-z0-9._~-]+",
            form="letters, digits and . _ ~ -",
            max_length=255,
        ),
        "taskNumber": Int("How many tasks of this role run.", minimum=1, default=1),
        "cpuNumber": Int("CPU cores of each task.", minimum=0, default=1),
        "memoryMB": Int("Memory of each task in MB.", minimum=0, default=100),
        "shmMB": Int("Size of /dev/shm in MB; not more than memoryMB.", minimum=0, default=64),
        "gpuNumber": Int("GPUs of each task.", minimum=0, default=0),
        "portList": ListOf(
            Fields(
                {
                    "label": _LABEL,
                    "beginAt": Int(
                        "First port; 0 lets the cluster choose.", minimum=0, maximum=65535, default=0
                    ),
                    "portNumber": Int("How many ports.", minimum=1, maximum=25_000, default=1),
                },
                required=("label",),
            ),
            "Ports; http and ssh have one each by default.",
        ),
        "command": Text("One shell command."),
        "minFailedTaskCount": Nullable(
            Int("Number of failed tasks that fails the job; null: none does.", minimum=1, default=1)
        ),
        "minSucceededTaskCount": Nullable(
            Int("Number of succeeded tasks that completes the job; null: all tasks.", minimum=1)
        ),
    },
    "A task role.",
    required=("name", "command"),
)

JOB_V1 = Fields(
    {
        "jobName": Text(
            "Name of the job.",
            pattern=r"[A-Za-z0-9._~][A-Za-z0-9._~-]*",
            form="letters, digits and . _ ~ -, not beginning with -",
            max_length=255,
        ),
        "image": Text(
            "The docker image of all tasks.", pattern=r"(?!-)[\s\S]*", form="an image, not beginning with -"
        ),
        "authFile": Text("A file of three lines: registry, user, password."),
        "dataDir": Text("Path of the data; PAI_DATA_DIR in the task."),
        "outputDir": Text("Path for the output; PAI_OUTPUT_DIR in the task."),
        "codeDir": Text("A folder that is copied into the task; PAI_CODE_DIR there."),
        "virtualCluster": Text("The virtual cluster the job is submitted to."),
        "gpuType": Text("GPU type; any by default."),
        "retryCount": Int(
            "Retries of a failed job; -1: without limit, -2: without limit and also after success.",
            minimum=-2,
            default=0,
        ),
        "taskRoles": ListOf(TASK_ROLE_V1, "The roles.", min_items=1),
        "killAllOnCompletedTaskNumber": Nullable(Int("Obsolete and without effect.")),
        "jobEnvs": MappingOf(Anything(), "Variables for all tasks."),
        "extras": MappingOf(Anything(), "Anything else."),
    },
    "A job in version 1 of OpenPAI's format.",
    required=("jobName", "image", "taskRoles"),
)


@dataclass(frozen=True, slots=True)
class TaskRoleV1:
    """A role of a version 1 job with its defaults filled in. ``ports``: label, first port or 0, count."""

    name: str
    task_number: int
    cpu_number: int
    memory_mb: int
    shm_mb: int
    gpu_number: int
    ports: tuple[tuple[str, int, int], ...]
    command: str
    min_failed: int | None
    min_succeeded: int | None


@dataclass(frozen=True, slots=True)
class JobV1:
    """A validated version 1 job. ``raw`` is the submitted data, with ``codedir`` renamed to ``codeDir``."""

    job_name: str
    image: str
    auth_file: str
    data_dir: str
    output_dir: str
    code_dir: str
    virtual_cluster: str
    gpu_type: str
    retry_count: int
    task_roles: tuple[TaskRoleV1, ...]
    job_envs: Mapping[str, Any]
    extras: Mapping[str, Any]
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def path(self, name: str, *, user: str, default_fs_uri: str = "") -> str:
        """A path field (``dataDir`` ...) with its variables replaced."""
        variables = {
            "$PAI_DEFAULT_FS_URI": default_fs_uri,
            "$PAI_JOB_NAME": self.job_name,
            "$PAI_USER_NAME": user,
            "$PAI_USERNAME": user,
        }
        text = {
            "authFile": self.auth_file,
            "dataDir": self.data_dir,
            "outputDir": self.output_dir or f"$PAI_DEFAULT_FS_URI{default_output(user, self.job_name)}",
            "codeDir": self.code_dir,
        }[name]
        return re.sub(
            r"\$PAI_(?:DEFAULT_FS_URI|JOB_NAME|USER_NAME|USERNAME)\b", lambda m: variables[m.group()], text
        )


def read_job_v1(
    source: str | bytes | Mapping[str, Any], *, file: str | None = None, strict: bool = False
) -> JobV1:
    """Read a version 1 job from text or plain data. All problems come in one ProtocolError.

    Harmless problems (an obsolete key, text after the job) are in ``job.warnings``; ``strict`` rejects what
    OpenPAI accepts.
    """
    document, notes = read_relaxed(source, file)
    return job_v1(document, notes, strict=strict)


def job_v1(document: Document, notes: list[Problem], *, strict: bool = False) -> JobV1:
    """The version 1 job of a parsed document."""
    data, problems = document.data, list(notes)
    if isinstance(data, dict) and "codedir" in data and "codeDir" not in data:
        problems.append(Problem(("codedir",), "should be codeDir", level="note", at_key=True))
        data = {"codeDir" if key == "codedir" else key: value for key, value in data.items()}
    if not JOB_V1.accepts(data):
        # A list of its own, which is full only of errors.
        errors: list[Problem] = []
        JOB_V1.explain(data, (), errors)
        problems += errors
    problems += _rules(data)
    return _build(data, raise_on_errors(problems, strict, lambda p: p if p.line else document.locate(p)))


def read_relaxed(source: str | bytes | Mapping[str, Any], file: str | None) -> tuple[Document, list[Problem]]:
    """Parse JSON with comments, trailing commas or text after its end; returns the document and notes."""
    if not isinstance(source, str | bytes):
        return read(source, file), []
    text = decode_text(source, file or "")
    if text.lstrip()[:1] not in ("{", "/"):
        return read(text, file), []
    text, notes = _without_tail(strip_comments(text), file or "")
    return read(text, file), notes


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)', re.DOTALL)
_COMMA = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|,(?=\s*+[}\]])', re.DOTALL)
_NOT_BREAK = re.compile(r"[^\r\n]")


def strip_comments(text: str) -> str:
    """Blank out ``//`` and ``/* */`` comments and trailing commas of JSON; positions do not change."""
    if "//" in text or "/*" in text:
        text = _TOKEN.sub(
            lambda m: m.group() if m.group()[0] == '"' else _NOT_BREAK.sub(" ", m.group()), text
        )
    return _COMMA.sub(lambda m: " " if m.group() == "," else m.group(), text)


def _without_tail(text: str, file: str) -> tuple[str, list[Problem]]:
    """Remove text after the top-level object, where some files have notes."""
    depth, end = 0, 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{}]', text, re.DOTALL):
        if token.group() == "{":
            depth += 1
        elif token.group() == "}":
            depth -= 1
            if depth == 0:
                end = token.end()
                break
    tail = text[end:].strip() if end else ""
    if not tail:
        return text, []
    place = end + len(text[end:]) - len(text[end:].lstrip())
    line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
    note = Problem((), "the text after the job is ignored", file=file, line=line, column=column, level="note")
    return text[:end], [note]


def _rules(data: Any) -> list[Problem]:
    """Rules that the schema does not express."""
    problems: list[Problem] = []
    if not isinstance(data, dict):
        return problems
    if "killAllOnCompletedTaskNumber" in data:
        message = "is obsolete and has no effect; use minSucceededTaskCount"
        problems.append(Problem(("killAllOnCompletedTaskNumber",), message, level="note", at_key=True))
    roles = data.get("taskRoles")
    names: set[str] = set()
    for index, role in enumerate(roles if isinstance(roles, list) else []):
        if not isinstance(role, dict):
            continue
        name = role.get("name")
        if isinstance(name, str):
            if name in names:
                message = f'there is already a role "{shorten(name)}"'
                problems.append(Problem(("taskRoles", index, "name"), message))
            names.add(name)
        tasks = role.get("taskNumber", 1)
        for key in ("minFailedTaskCount", "minSucceededTaskCount"):
            count = role.get(key)
            if _number(count) and _number(tasks) and count > tasks:
                message = f"{count} is more than taskNumber, which is {tasks}"
                problems.append(Problem(("taskRoles", index, key), message))
        shm, memory = role.get("shmMB", 0), role.get("memoryMB", 100)
        if _number(shm) and _number(memory) and shm > memory:
            message = f"{shm} is more than memoryMB, which is {memory}"
            problems.append(Problem(("taskRoles", index, "shmMB"), message))
    for key, value in (data.get("jobEnvs") if isinstance(data.get("jobEnvs"), dict) else {}).items():  # type: ignore[union-attr]
        if isinstance(value, dict | list):
            problems.append(
                Problem(("jobEnvs", key), "a variable is text or a number, not a list or a mapping")
            )
    return problems


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _build(data: dict[str, Any], warnings: tuple[Problem, ...]) -> JobV1:
    return JobV1(
        job_name=data["jobName"],
        image=data["image"],
        auth_file=data.get("authFile", ""),
        data_dir=data.get("dataDir", ""),
        output_dir=data.get("outputDir", ""),
        code_dir=data.get("codeDir", ""),
        virtual_cluster=data.get("virtualCluster") or "default",
        gpu_type=data.get("gpuType", ""),
        retry_count=int(data.get("retryCount", 0)),
        task_roles=tuple(map(_build_role, data["taskRoles"])),
        job_envs=data.get("jobEnvs", {}),
        extras=data.get("extras", {}),
        warnings=warnings,
        raw=data,
    )


def _build_role(role: dict[str, Any]) -> TaskRoleV1:
    def count(key: str) -> int | None:
        return None if role.get(key) is None else int(role[key])

    return TaskRoleV1(
        name=role["name"],
        task_number=int(role.get("taskNumber", 1)),
        cpu_number=int(role.get("cpuNumber", 1)),
        memory_mb=int(role.get("memoryMB", 100)),
        shm_mb=int(role.get("shmMB", min(64, int(role.get("memoryMB", 100))))),
        gpu_number=int(role.get("gpuNumber", 0)),
        ports=tuple(
            (item["label"], int(item.get("beginAt", 0)), int(item.get("portNumber", 1)))
            for item in role.get("portList", ())
        ),
        command=role["command"],
        min_failed=count("minFailedTaskCount") if "minFailedTaskCount" in role else 1,
        min_succeeded=count("minSucceededTaskCount"),
    )
