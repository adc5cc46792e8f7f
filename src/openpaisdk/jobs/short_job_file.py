"""Short job files: the options of ``pai sub`` as YAML or JSON, submitted as a version 2 job.

    command: python train.py
    image: pytorch/pytorch
    resources: {gpu: 1, mem: 16g}

A short file has the key ``command`` (or one of the other keys that only it has) and none of the keys of
OpenPAI's job protocol. Its paths are relative to the folder of the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from openpaisdk.errors import ProtocolError, UsageError
from openpaisdk.jobs.command_job import JobOptions
from openpaisdk.jobs.command_options import command_options
from openpaisdk.jobs.command_submission import current_folder
from openpaisdk.jobs.job_file import is_job_path, plain_data, read_contents
from openpaisdk.jobs.job_names import MAX_LENGTH, expand_name
from openpaisdk.jobs.option_values import dependency, memory_mb, port_counts, seconds
from openpaisdk.jobs.task_array import array_of
from openpaisdk.protocol import apply_overrides
from openpaisdk.protocol.document import Document, read
from openpaisdk.protocol.extras import PRIORITIES, VARIABLE_NAME
from openpaisdk.protocol.json_schema import json_schema_of
from openpaisdk.protocol.problems import Path, Problem, describe_value, did_you_mean, raise_on_errors
from openpaisdk.protocol.schema_nodes import Bool, Choice, Fields, Int, ListOf, Node, Text, TextOrNumber
from openpaisdk.protocol.secret_references import replace_aliases

if TYPE_CHECKING:
    from collections.abc import Sequence

PROTOCOL_KEYS = frozenset(("protocolVersion", "jobName", "taskRoles", "prerequisites"))
# In block YAML a key at the start of a line is one of the top level. Long files need not be parsed twice.
_PROTOCOL_KEY = re.compile(rf"^(?:{'|'.join(PROTOCOL_KEYS)})[ \t]*:".encode(), re.MULTILINE)
_OWN_KEYS = frozenset(("command", "image", "resources", "sources"))


class OptionValue(Node):
    """A value that a parser of option values accepts; the parser's own sentence says what is wrong."""

    def __init__(self, parse: Callable[[Any], object], expected: str, doc: str, **schema: Any):
        super().__init__(doc)
        self.parse = parse
        self.expected = expected
        self.schema = schema

    def accepts(self, value: Any) -> bool:
        problems: list[Problem] = []
        self.explain(value, (), problems)
        return not problems

    def explain(self, value: Any, path: Path, problems: list[Problem]) -> None:
        try:
            self.parse(value)
        except UsageError as error:
            problems.append(Problem(path, error.message.rstrip("."), expected=self.expected))
        except (TypeError, ValueError, AttributeError):
            problems.append(Problem(path, "", expected=self.expected, found=describe_value(value, path)))

    def json_schema(self) -> dict[str, Any]:
        return {**super().json_schema(), **self.schema}


class TextOrList(Text):
    """Text, or a list of texts; text alone is one item."""

    def __init__(self, doc: str):
        super().__init__(doc)
        self.expected = "text or a list of texts"
        self._list = ListOf(Text())

    def accepts(self, value: Any) -> bool:
        return super().accepts(value) or self._list.accepts(value)

    def explain(self, value: Any, path: Path, problems: list[Problem]) -> None:
        if isinstance(value, list):
            self._list.explain(value, path, problems)
        else:
            super().explain(value, path, problems)

    def json_schema(self) -> dict[str, Any]:
        return {"description": self.doc, "type": ["string", "array"], "items": {"type": "string"}}


class Variables(Node):
    """Variables by name, or a list of ``NAME=value``; without a value, the one of the submitting shell."""

    expected = "variables by name, or a list of NAME=value"

    def accepts(self, value: Any) -> bool:
        problems: list[Problem] = []
        self.explain(value, (), problems)
        return not problems

    def explain(self, value: Any, path: Path, problems: list[Problem]) -> None:
        if isinstance(value, list) and ListOf(Text()).accepts(value):
            names: list[tuple[str | int, Any]] = [(i, item.partition("=")[0]) for i, item in enumerate(value)]
        elif isinstance(value, dict):
            names = [(name, name) for name in value]
            for name, item in value.items():
                if item is not None:
                    TextOrNumber().explain(item, (*path, name), problems)
        else:
            found = describe_value(value, path)
            problems.append(Problem(path, "", expected=self.expected, found=found))
            return
        for key, name in names:
            if not VARIABLE_NAME.accepts(name):
                problems.append(Problem((*path, key), "", expected=VARIABLE_NAME.expected, at_key=True))

    def json_schema(self) -> dict[str, Any]:
        return {**super().json_schema(), "type": ["object", "array"]}


_DURATION = {"type": ["string", "number"]}
_RESOURCES = Fields(
    {
        "cpu": Int("Cores per task (--cpu).", minimum=1),
        "gpu": Int("GPUs per task (--gpu).", minimum=0),
        "mem": OptionValue(memory_mb, "a size like 4g", "Memory per task (--mem).", type="string"),
        "memoryMB": Int("Memory per task in MB (--memoryMB).", minimum=1),
        "ports": OptionValue(
            port_counts,
            "counts by label, like {http: 1}",
            "Ports per task by label (--ports).",
            type=["object", "array", "string"],
        ),
    },
    "Resources of each task.",
)
_FIELDS: dict[str, Node] = {
    "name": Text(
        "Name of the job; $ becomes a unique suffix (-j). By default made from the command.",
        pattern=r"[A-Za-z0-9_$-]+",
        form="letters, digits, _, - and $",
        max_length=MAX_LENGTH,
    ),
    "command": TextOrList("Shell line that the job runs, or several, one after the other."),
    "image": Text("Container image (-i)."),
    "resources": _RESOURCES,
    "instances": Int("Tasks, started together (--instances).", minimum=1),
    "array": OptionValue(
        array_of,
        "a number of tasks, or lists of values by name",
        "Independent tasks (--array): a number, or one for each combination of values.",
        type=["integer", "string", "array", "object"],
    ),
    "sources": TextOrList(
        "Files and folders to upload, relative to this file (--sources); by default the folder of this "
        "file, an empty list for nothing."
    ),
    "outputs": TextOrList("Output files and folders, stored when the job ends (--outputs)."),
    "env": Variables("Environment variables (--env)."),
    "secrets": Variables("Variables that are masked in logs and configurations (--secret)."),
    "pip": TextOrList("Python packages to install (--pip)."),
    "pip-path": Text("The pip to install with (--pip-path)."),
    "python": Text("The Python of the image to use (--python)."),
    "capture-logging": Bool("Whether Python's logging records get level and time (--capture-logging)."),
    "workspace": Text("Folder on the storage for the job's files (-w)."),
    "vc": Text("Virtual cluster (--vc)."),
    "priority": Choice(*PRIORITIES, doc="Priority class (--priority)."),
    "timeout": OptionValue(
        seconds, "a duration like 2h", "Time after which a task is stopped (--timeout).", **_DURATION
    ),
    "retry": Int("Retries of a failed job (--retry).", minimum=0),
    "after": OptionValue(
        lambda value: [dependency(job) for job in ([value] if isinstance(value, str) else value)],
        "names of jobs",
        "Jobs that must succeed first; with :end, finish first (--after).",
        type=["string", "array"],
    ),
    "tags": TextOrList("Tags of the job."),
    "debug-hold": OptionValue(
        seconds,
        "a duration like 10m",
        "How long a failed task is kept for inspection (--debug-hold).",
        **_DURATION,
    ),
}
_SYNONYMS = {"pip-installs": "pip", "virtual-cluster": "vc", "src": "sources", "job-name": "name"}
"""Other names of the same option of ``pai sub``."""
SHORT_JOB = Fields(
    {**_FIELDS, **{key: _FIELDS[name] for key, name in _SYNONYMS.items()}},
    "A short job: the options of pai sub as a file.",
    required=("command",),
)


class ShortJob:
    """A short job: its options and its files. ``sources``: None for the folder, empty for no files."""

    def __init__(self, options: JobOptions, sources: list[str] | None, folder: str, has_name: bool):
        self.options = options
        self.sources = sources
        self.folder = folder
        self.has_name = has_name


def is_short_job(data: object) -> bool:
    """Whether plain data is a short job, which shares no required key with the protocol's versions."""
    if not isinstance(data, Mapping) or PROTOCOL_KEYS & data.keys():
        return False
    return bool(_OWN_KEYS & data.keys()) or any(
        did_you_mean(str(key), ["command"]).startswith("did you") for key in data
    )


def find_short_job(job: Mapping[str, Any] | str) -> ShortJob | None:
    """The short job in a mapping, or in the text or the path of a job file; None for other jobs."""
    if not isinstance(job, str):
        return read_short_job(job) if is_short_job(job) else None
    if is_job_path(job):
        file, source = read_contents(job)
        return (
            read_short_job(source, file=file, folder=job_folder(job)) if is_short_text(source, file) else None
        )
    text = job.encode(errors="surrogateescape")
    return read_short_job(text) if is_short_text(text, "") else None


def is_short_text(source: bytes, file: str) -> bool:
    """Whether a text is a short job. One that cannot be parsed is none: its reader says why."""
    if _PROTOCOL_KEY.search(source):
        return False
    try:
        return is_short_job(plain_data(source, file))
    except ProtocolError:
        return False


def job_folder(path: str) -> str:
    """The folder to which the paths in a job file are relative; for standard input the current one."""
    return current_folder() if path == "-" else os.path.dirname(os.path.realpath(path))


def read_short_job(
    source: str | bytes | Mapping[str, Any],
    *,
    file: str = "",
    folder: str = "",
    updates: Sequence[str] = (),
    virtual_cluster: str = "",
) -> ShortJob:
    """Read a short job from text or plain data; all problems come in one error, each with its line."""
    document = read(source, file)
    if updates or virtual_cluster:
        # The updated data no longer tells what was an alias.
        raise_on_errors(_aliases_of_secrets(document), False, document.locate)
        changes = [*updates, *([f"vc={virtual_cluster}"] if virtual_cluster else [])]
        document = Document(apply_overrides(document.data, changes, schema=SHORT_JOB), None, file)
    check_short_job(document)
    data = {_SYNONYMS.get(key, key): value for key, value in document.data.items()}
    given = data.pop("sources", None)
    sources = [given] if isinstance(given, str) else given
    name = expand_name(data.pop("name")) if "name" in data else ""
    data = {**data.pop("resources", {}), **data}
    values = {_PARAMETERS.get(key, key): value for key, value in data.items()}
    options = command_options(name, values.pop("commands"), **values)
    return ShortJob(options, sources, folder or current_folder(), bool(name))


_PARAMETERS = {
    "command": "commands",
    "memoryMB": "memory_mb",
    "pip": "pip_installs",
    "pip-path": "pip_path",
    "capture-logging": "capture_logging",
    "vc": "virtual_cluster",
    "retry": "retries",
    "debug-hold": "debug_hold",
}
"""Parameters of ``command_options`` for keys that have another name."""


def check_short_job(document: Document) -> None:
    """Raise ``ProtocolError``, with all problems, unless the document is a valid short job."""
    problems = _aliases_of_secrets(document)
    SHORT_JOB.explain(document.data, (), problems)
    for key, name in _SYNONYMS.items() if isinstance(document.data, dict) else ():
        if key in document.data and name in document.data:
            problems.append(Problem((key,), f'the same as "{name}", which is given, too', at_key=True))
    raise_on_errors(list(map(_with_place, problems)), False, document.locate)


def _aliases_of_secrets(document: Document) -> list[Problem]:
    return replace_aliases(document, lambda path: False)


def _with_place(problem: Problem) -> Problem:
    """A resource beside ``resources`` is a frequent mistake."""
    if problem.message == "unknown key" and problem.path[:-1] == () and problem.path[0] in _RESOURCES.fields:
        return replace(problem, suggestion='put it under "resources"')
    return problem


def short_job_schema() -> dict[str, Any]:
    """The JSON Schema of short job files, for editors."""
    return json_schema_of(SHORT_JOB, "Short job file of pai submit")
