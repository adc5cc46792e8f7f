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

from openpaisdk.jobs.command_submission import current_folder
from openpaisdk.jobs.job_file import is_job_path, plain_data, read_contents
from openpaisdk.jobs.job_names import MAX_LENGTH, expand_name
from openpaisdk.jobs.job_options import JOB_OPTIONS, JobOptions
from openpaisdk.jobs.option_definition import CHOICE, COUNT, LIST, SWITCH, VALUE, VARIABLES, JobOption
from paiprotocol.errors import ProtocolError, UsageError
from paiprotocol.jobs import apply_overrides
from paiprotocol.jobs.document import Document, read
from paiprotocol.jobs.extras import VARIABLE_NAME
from paiprotocol.jobs.json_schema import json_schema_of
from paiprotocol.jobs.problems import Path, Problem, describe_value, did_you_mean, raise_on_errors
from paiprotocol.jobs.schema_nodes import Bool, Choice, Fields, Int, ListOf, Node, Text, TextOrNumber
from paiprotocol.jobs.secret_references import replace_aliases

if TYPE_CHECKING:
    from collections.abc import Sequence

PROTOCOL_KEYS = frozenset(("protocolVersion", "jobName", "taskRoles", "prerequisites"))
# In block YAML a key at the start of a line is one of the top level. Long files need not be parsed twice.
_PROTOCOL_KEY = re.compile(rf"^(?:{'|'.join(PROTOCOL_KEYS)})[ \t]*:".encode(), re.MULTILINE)
_RESOURCE = "resources:"
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


def _node(option: JobOption[Any]) -> Node:
    """The schema of an option's value in a file."""
    doc = option.key_help
    if option.kind == VALUE and option.check is not None:
        return OptionValue(option.check, option.expected, doc, type=option.json_type)
    if option.kind == COUNT:
        return Int(doc, minimum=option.minimum)
    if option.kind == CHOICE:
        return Choice(*option.choices, doc=doc)
    kinds: dict[str, Callable[[str], Node]] = {LIST: TextOrList, VARIABLES: Variables, SWITCH: Bool}
    return kinds.get(option.kind, Text)(doc)


_BY_KEY = {option.key: option for option in JOB_OPTIONS}
_RESOURCES = Fields(
    {
        key.removeprefix(_RESOURCE): _node(option)
        for key, option in _BY_KEY.items()
        if key.startswith(_RESOURCE)
    },
    "Resources of each task.",
)
_FIELDS: dict[str, Node] = {
    "name": Text(
        JobOptions.name.key_help,
        pattern=r"[A-Za-z0-9_$-]+",
        form="letters, digits, _, - and $",
        max_length=MAX_LENGTH,
    ),
    "command": TextOrList("Shell line that the job runs, or several, one after the other."),
    "resources": _RESOURCES,
    **{
        key: _node(option)
        for key, option in _BY_KEY.items()
        if option is not JobOptions.name and not key.startswith(_RESOURCE)
    },
}
_SYNONYMS = {other: option.key for option in JOB_OPTIONS for other in option.other_keys}
"""Other names of the same option of ``pai sub``."""
SHORT_JOB = Fields(
    {**_FIELDS, **{key: _FIELDS[name] for key, name in _SYNONYMS.items()}},
    "A short job: the options of pai sub as a file.",
    required=("command",),
)


class ShortJob:
    """A short job: its options, and the folder of its files."""

    def __init__(self, options: JobOptions, folder: str, has_name: bool):
        self.options = options
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
        # An option replaces the value of the file, whichever name its key has there.
        key = next((k for k in _names_of("vc") if k in document.data), "vc")
        changes = [*updates, *([f"{key}={virtual_cluster}"] if virtual_cluster else [])]
        document = Document(apply_overrides(document.data, changes, schema=SHORT_JOB), None, file)
    check_short_job(document)
    data = {_SYNONYMS.get(key, key): value for key, value in document.data.items()}
    name = expand_name(data.pop("name")) if "name" in data else ""
    commands = data.pop("command")
    resources = {f"{_RESOURCE}{key}": value for key, value in data.pop("resources", {}).items()}
    values = {_BY_KEY[key].keyword: value for key, value in {**resources, **data}.items()}
    if isinstance(files := values.get("sources"), str):
        values["sources"] = [files]  # an empty text is the folder of the file, with all that is in it
    if rows := values.get(JobOptions.array_file.keyword):
        values[JobOptions.array_file.keyword] = os.path.join(folder or current_folder(), rows)
    return ShortJob(JobOptions.read(name, commands, values), folder or current_folder(), bool(name))


def _names_of(key: str) -> list[str]:
    """All names of a key."""
    return [key, *(other for other, name in _SYNONYMS.items() if name == key)]


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
    """The problem, with a suggestion for a resource that was put beside ``resources``."""
    if problem.message == "unknown key" and problem.path[:-1] == () and problem.path[0] in _RESOURCES.fields:
        return replace(problem, suggestion='put it under "resources"')
    return problem


def short_job_schema() -> dict[str, Any]:
    """The JSON Schema of short job files, for editors."""
    return json_schema_of(SHORT_JOB, "Short job file of pai submit")
