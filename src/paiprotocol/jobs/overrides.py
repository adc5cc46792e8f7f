"""Overrides of single values of a job: ``key:path=value``, typed by the schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from paiprotocol.errors import ProtocolError
from paiprotocol.jobs.document import read, to_plain_data
from paiprotocol.jobs.problems import Path, Problem, did_you_mean, protocol_error, shorten
from paiprotocol.jobs.schema_nodes import (
    Anything,
    Choice,
    Fields,
    ListOf,
    MappingOf,
    Node,
    Nullable,
    Text,
    TextOrNumber,
    Variant,
)
from paiprotocol.jobs.versions import job_version

_ANYTHING = Anything()


def apply_overrides(
    data: Mapping[str, Any], overrides: Iterable[str], *, schema: Node | None = None
) -> dict[str, Any]:
    """A copy of a job's plain data (version 1 or 2, or of ``schema``) with every ``key:path=value`` applied.

    A path consists of keys and list indexes (``taskRoles:worker:commands:0=ls``; the index after the last
    appends); missing mappings are created. A value gets the type that the schema has for the key, so
    ``name=007`` stays text; where the schema allows any type (parameters, extras), it is parsed as YAML. All
    problems of the overrides come in one ProtocolError; the job itself is not validated.
    """
    changed: dict[str, Any] = to_plain_data(data)
    problems: list[Problem] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        path = tuple(part for part in key.strip().split(":") if part)
        if not equals or not path:
            # Not shown if it may contain a secret: its value may be anywhere in the text.
            what = "this" if "secret" in override.lower() else f'"{shorten(override)}"'
            problems.append(Problem((), f"{what} is not an update", expected="key:path=value"))
            continue
        try:
            _apply(changed, path, text, schema)
        except _OverrideError as error:
            problems.append(_with_accepted_form(error.problem, key))
    if problems:
        raise protocol_error(problems, what="list of updates")
    return changed


def _with_accepted_form(problem: Problem, key: str) -> Problem:
    """In messages a path is written ``taskRoles[0].command``; an update has colons instead."""
    if not re.search(r"[.\[]", str(problem.path[-1])):
        return problem
    accepted = ":".join(step for step in re.split(r"[.\[\]:]", key.strip()) if step)
    return replace(problem, suggestion=f"write {shorten(accepted)}=VALUE, with : before keys and indexes")


class _OverrideError(Exception):
    def __init__(self, path: Path, message: str, **more: str):
        super().__init__(message)
        self.problem = Problem(path, message, **more)  # type: ignore[arg-type]


def _apply(data: dict[str, Any], path: tuple[str, ...], text: str, schema: Node | None) -> None:
    node: Node = schema or _root(data)
    target: Any = data
    walked: Path = ()
    for part, next_part in pairwise(path):
        step, node = _step(target, node, part, walked)
        walked = (*walked, step)
        inside = target.get(step) if isinstance(target, dict) else next(iter(target[step:]), None)
        if inside is None:
            inside = [] if isinstance(_unwrap(node), ListOf) else {}
            _put(target, step, inside)
        elif not isinstance(inside, dict | list):
            raise _OverrideError(walked, f'is a single value, so there is no "{shorten(next_part)}" in it')
        target = inside
    step, node = _step(target, node, path[-1], walked)
    _put(target, step, _typed(text, node, (*walked, step)))


def _put(target: Any, step: str | int, value: Any) -> None:
    if step == len(target) and isinstance(target, list):
        target.append(value)
    else:
        target[step] = value


def _root(data: dict[str, Any]) -> Node:
    if job_version(data) == 1:
        from paiprotocol.jobs.v1 import JOB_V1

        return JOB_V1
    from paiprotocol.jobs.v2_schema import JOB_V2

    return JOB_V2


def _unwrap(node: Node) -> Node:
    return node.inner if isinstance(node, Nullable) else node


def _step(target: dict[str, Any] | list[Any], node: Node, part: str, walked: Path) -> tuple[str | int, Node]:
    """Descend by one key or index: the key to use, and the schema node of its value."""
    node = _unwrap(node)
    if isinstance(target, list):
        if not part.isdecimal() or len(part) > 9 or int(part) > len(target):
            expected = f"an index from 0 to {len(target)}"
            raise _OverrideError((*walked, part), "", expected=expected, found=f'"{shorten(part)}"')
        return int(part), node.item if isinstance(node, ListOf) else _ANYTHING
    if isinstance(node, Variant):
        node = node.variants.get(str(target.get(node.key)), _merged_fields(node))
    if isinstance(node, MappingOf):
        if node.key is not None and not node.key.accepts(part):
            raise _OverrideError((*walked, part), "", expected=node.key.expected, found=f'"{shorten(part)}"')
        return part, node.item
    if isinstance(node, Fields):
        if part in node.fields:
            return part, node.fields[part]
        if not node.open:
            hint = did_you_mean(part, node.fields)
            raise _OverrideError((*walked, part), "unknown key", suggestion=hint)
    return part, _ANYTHING


def _merged_fields(node: Variant) -> Fields:
    return Fields(
        {key: field for fields in node.variants.values() for key, field in fields.fields.items()}, open=True
    )


def _typed(text: str, node: Node, path: Path) -> Any:
    """Parse the text to the type that the schema has at this path."""
    bare = _unwrap(node)
    if isinstance(bare, Text | TextOrNumber) and not (bare is not node and text == "null"):
        value: Any = text
    elif isinstance(bare, Choice):
        values = {str(choice): choice for choice in reversed(bare.choices)}
        value = values.get(text, text)
    else:
        value = _from_yaml(text)
    problems: list[Problem] = []
    node.explain(value, path, problems)
    if problems:
        first = problems[0]
        raise _OverrideError(
            first.path, first.message, expected=first.expected, found=first.found, suggestion=first.suggestion
        )
    return value


def _from_yaml(text: str) -> Any:
    """Parse as YAML if it looks like a list, mapping or quoted text, else as a plain scalar."""
    if text.lstrip()[:1] not in ("[", "{", '"', "'"):
        from paiprotocol.jobs.yaml_nodes import plain_scalar

        return plain_scalar(text)
    try:
        return read(text).data
    except ProtocolError:
        return text
