"""The OpenAPI document, from the routes and what is said of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from paicluster.api.openapi.operation import JSON, Either, Handler, Operation, Problem, Query, Text, name_of

Routes = Sequence[tuple[str, list[str], Handler]]

_PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")
_REFERENCE = "#/components/schemas/{name}"


def document(routes: Routes, operations: Mapping[str, Operation], version: str) -> dict[str, Any]:
    types = _Types(operations.values())
    paths: dict[str, dict[str, Any]] = {}
    for path, methods, handler in routes:
        operation = operations.get(name_of(handler))
        if operation is None:
            continue
        entry = paths.setdefault(_PARAMETER.sub(r"{\1}", path), {})
        for method in methods:
            entry[method.lower()] = _operation(operation, method, path, types)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "OpenPAI REST API",
            "version": version,
            "description": "Every address is there under /rest-server too.",
        },
        "servers": [{"url": "/"}, {"url": "/rest-server"}],
        "paths": paths,
        "components": {
            "schemas": types.components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "application": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _operation(operation: Operation, method: str, path: str, types: _Types) -> dict[str, Any]:
    parameters = [_in_path(name, kind) for name, kind in _PARAMETER.findall(path)]
    parameters += [_in_query(query, types) for query in operation.query]
    answers: dict[int, Any] = {
        status: _answer(status, what, types) for status, what in operation.answers.items()
    }
    for status in _errors(operation, path):
        answers.setdefault(status, _answer(status, None if method == "HEAD" else Problem, types))
    described: dict[str, Any] = {
        "operationId": _identifier(method, path),
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": {str(status): answers[status] for status in sorted(answers)},
    }
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None and method not in ("GET", "HEAD"):
        described["requestBody"] = {
            "required": operation.body.required,
            "content": {media: _content(kind, types) for media, kind in operation.body.kinds.items()},
        }
    if operation.token:
        described["security"] = [{"bearer": []}, {"application": []}]
    return described


def _errors(operation: Operation, path: str) -> Iterable[int]:
    yield from operation.errors
    yield from (429, 500, 503)
    if operation.token:
        yield 401
    if "{" in path:
        yield 404
    if operation.query or operation.body is not None:
        yield 400
    if operation.body is not None:
        yield 413


def _answer(status: int, what: Any, types: _Types) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if status == 429:
        answer["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    kinds = what if isinstance(what, tuple) else () if what is None else (what,)
    if kinds:
        answer["content"] = {
            kind.media if isinstance(kind, Text) else JSON: _content(kind, types) for kind in kinds
        }
    return answer


def _content(kind: Any, types: _Types) -> dict[str, Any]:
    if isinstance(kind, Text):
        return {} if kind.binary else {"schema": {"type": "string"}}
    return {"schema": types.schema_of(kind)}


def _in_path(name: str, convertor: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if convertor in ("count", "int"):
        schema = {"type": "integer", "minimum": 0}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(query: Query, types: _Types) -> dict[str, Any]:
    parameter = {
        "name": query.name,
        "in": "query",
        "required": query.required,
        "schema": types.schema_of(query.kind),
    }
    if query.about:
        parameter["description"] = query.about
    return parameter


def _identifier(method: str, path: str) -> str:
    if path.endswith("/"):
        path += "index"
    words = re.sub(r"[^A-Za-z0-9]+", " ", _PARAMETER.sub(r"by \1", path)).split()
    return method.lower() + "".join(word[0].upper() + word[1:] for word in words)


class _Types:
    """Every type of the description as a JSON schema; structures once, under their names."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        kinds: list[Any] = [Problem]
        for operation in operations:
            kinds += [query.kind for query in operation.query]
            for what in operation.answers.values():
                for one in what if isinstance(what, tuple) else (what,):
                    kinds += (one.one, one.other) if isinstance(one, Either) else (one,)
            kinds += operation.body.kinds.values() if operation.body is not None else ()
        self._kinds = [kind for kind in kinds if kind is not None and not isinstance(kind, Text)]
        schemas, self.components = msgspec.json.schema_components(self._kinds, ref_template=_REFERENCE)
        self._schemas = list(schemas)

    def schema_of(self, kind: Any) -> dict[str, Any]:
        if isinstance(kind, Either):
            return {"anyOf": [self.schema_of(kind.one), self.schema_of(kind.other)]}
        return next(schema for known, schema in zip(self._kinds, self._schemas, strict=True) if known is kind)
