"""Version 1 jobs sent as a form, ``taskRoles[0][name]=main&...``, as OpenPAI's VS Code client sends them.

A form has neither lists nor numbers: names with brackets form the structure, and the schema says which text
is a number.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from paiprotocol.errors import InvalidParameters
from paiprotocol.jobs.schema_nodes import Anything, Fields, Int, ListOf, Node, Nullable
from paiprotocol.jobs.v1 import JOB_V1

_CONTENT_TYPE = "application/x-www-form-urlencoded"
# `curl -d @job.json` sends the type of a form, too. A job in JSON begins otherwise.
_FIRST_FIELD = re.compile(rb"\s*[A-Za-z]+(=|\[|%5[Bb])")
_NAME = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)")
_KEY = re.compile(r"\[([^\[\]]*)\]")
_MAX_FIELDS = 10_000
_MAX_DEPTH = 20

# A mapping of text and of further mappings, as the names of the fields say; a list has numbers as keys.
_Tree = dict[str, Any]


def is_form(request: Request, body: bytes) -> bool:
    """Whether the body of a submission is a form."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return content_type == _CONTENT_TYPE and _FIRST_FIELD.match(body) is not None


def read_form(text: str) -> dict[str, Any]:
    """The job in a form, not yet validated."""
    try:
        pairs = parse_qsl(
            text.strip(), keep_blank_values=True, strict_parsing=True, max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        raise InvalidParameters(
            f"The form cannot be read: it must be NAME=VALUE&..., with at most {_MAX_FIELDS} fields."
        ) from None
    tree: _Tree = {}
    for name, value in pairs:
        _insert(tree, name, value)
    job: dict[str, Any] = _typed(JOB_V1, tree)
    return job


def _insert(tree: _Tree, name: str, value: str) -> None:
    match = _NAME.fullmatch(name)
    keys = [] if match is None else [match[1], *_KEY.findall(match[2])]
    if not 0 < len(keys) <= _MAX_DEPTH:
        raise _bad_field(name, "is not of the form a[0][b]")
    inner = tree
    for key in keys[:-1]:
        inner = inner.setdefault(key or str(len(inner)), {})
        if not isinstance(inner, dict):
            raise _bad_field(name, "is inside of a field that has a value")
    last = keys[-1] or str(len(inner))
    if last in inner:
        raise _bad_field(name, "is given twice")
    inner[last] = value


def _typed(node: Node, value: Any) -> Any:
    """The value with lists and numbers where the schema has them; what does not fit is left to validation."""
    if isinstance(node, Nullable):
        return None if value == "" else _typed(node.inner, value)
    if isinstance(node, Int):
        is_number = isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value)
        return int(value) if is_number else value
    if not isinstance(value, dict):
        return value
    if isinstance(node, Fields):
        # Clients send a field without a value for null: the default applies.
        return {
            key: _typed(node.fields.get(key, Anything()), item)
            for key, item in value.items()
            if item != "" or not isinstance(node.fields.get(key), Int)
        }
    if isinstance(node, ListOf) or (isinstance(node, Anything) and _is_list(value)):
        item = node.item if isinstance(node, ListOf) else node
        return [_typed(item, value[key]) for key in sorted(value, key=int)] if _is_list(value) else value
    return {key: _typed(Anything(), item) for key, item in value.items()}


def _is_list(value: _Tree) -> bool:
    return all(re.fullmatch(r"[0-9]{1,6}", key) for key in value)


def _bad_field(name: str, problem: str) -> InvalidParameters:
    return InvalidParameters(f'The field "{name[:100]}" of the form {problem}.')
