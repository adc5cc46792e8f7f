"""OpenAPI document, built from the route table and the operations."""

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
    types = _SchemaRegistry(operations.values())
    paths: dict[str, dict[str, Any]] = {}
    for path, methods, handler in routes:
        operation = operations.get(name_of(handler))
        if operation is None:
            continue
        entry = paths.setdefault(_PARAMETER.sub(r"{\1}", path), {})
        for method in methods:
            described = _operation(operation, method, path, types)
            known = entry.get(method.lower())
            entry[method.lower()] = described if known is None else _either(known, described)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "OpenPAI REST API",
            "version": version,
            "description": "Every path is also available below /rest-server.",
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


def _operation(operation: Operation, method: str, path: str, types: _SchemaRegistry) -> dict[str, Any]:
    parameters = [_path_parameter(name, kind) for name, kind in _PARAMETER.findall(path)]
    parameters += [_query_parameter(query, types) for query in operation.query]
    responses: dict[int, Any] = {
        status: _response(status, content, types) for status, content in operation.responses.items()
    }
    for status in _error_statuses(operation, path):
        responses.setdefault(status, _response(status, None if method == "HEAD" else Problem, types))
    entry: dict[str, Any] = {
        "operationId": _operation_id(method, path),
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": {str(status): responses[status] for status in sorted(responses)},
    }
    if parameters:
        entry["parameters"] = parameters
    if operation.body is not None and method not in ("GET", "HEAD"):
        entry["requestBody"] = {
            "required": operation.body.required,
            "content": {media: _media_type(kind, types) for media, kind in operation.body.kinds.items()},
        }
    if operation.token:
        entry["security"] = [{"bearer": []}, {"application": []}]
    return entry


def _either(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """One operation for two dialects on one path: what it accepts and returns is that of either."""
    merged = {**second, **first, "tags": [*first["tags"], *second["tags"]]}
    merged["summary"] = f"{first['summary']} ({second['tags'][0]}: {second['summary']})"
    merged["responses"] = dict(first["responses"])
    for status, response in second["responses"].items():
        known = merged["responses"].get(status)
        contents = [one.get("content", {}) for one in (known, response) if one is not None]
        merged["responses"][status] = {**response, "content": _either_content(contents)}
    if "requestBody" in second:
        bodies = [one["requestBody"] for one in (first, second) if "requestBody" in one]
        merged["requestBody"] = {
            "required": all(body["required"] for body in bodies) and len(bodies) == 2,
            "content": _either_content([body["content"] for body in bodies]),
        }
    return merged


def _either_content(contents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for content in contents:
        for media, kind in content.items():
            known = merged.get(media)
            schemas = [one["schema"] for one in (known, kind) if one and "schema" in one]
            merged[media] = kind if known in (None, kind) else {"schema": {"anyOf": schemas}}
    return merged


def _error_statuses(operation: Operation, path: str) -> Iterable[int]:
    yield from operation.errors
    yield from (429, 500, 503)
    if operation.token:
        yield from (401, 403)
    if "{" in path:
        yield 404
    if operation.query or operation.body is not None:
        yield 400
    if operation.body is not None:
        yield 413


def _response(status: int, content: Any, types: _SchemaRegistry) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if status == 429:
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    kinds = content if isinstance(content, tuple) else () if content is None else (content,)
    if kinds:
        response["content"] = {
            kind.media if isinstance(kind, Text) else JSON: _media_type(kind, types) for kind in kinds
        }
    return response


def _media_type(kind: Any, types: _SchemaRegistry) -> dict[str, Any]:
    if isinstance(kind, Text):
        return {} if kind.binary else {"schema": {"type": "string"}}
    return {"schema": types.schema_of(kind)}


def _path_parameter(name: str, convertor: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if convertor in ("count", "int"):
        schema = {"type": "integer", "minimum": 0}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameter(query: Query, types: _SchemaRegistry) -> dict[str, Any]:
    parameter = {
        "name": query.name,
        "in": "query",
        "required": query.required,
        "schema": types.schema_of(query.kind),
    }
    if query.description:
        parameter["description"] = query.description
    return parameter


def _operation_id(method: str, path: str) -> str:
    if path.endswith("/"):
        path += "index"
    words = re.sub(r"[^A-Za-z0-9]+", " ", _PARAMETER.sub(r"by \1", path)).split()
    return method.lower() + "".join(word[0].upper() + word[1:] for word in words)


class _SchemaRegistry:
    """JSON schemas of all types in the operations; each struct once, as a component."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        kinds: list[Any] = [Problem]
        for operation in operations:
            kinds += [query.kind for query in operation.query]
            for content in operation.responses.values():
                for kind in content if isinstance(content, tuple) else (content,):
                    kinds += (kind.first, kind.second) if isinstance(kind, Either) else (kind,)
            kinds += operation.body.kinds.values() if operation.body is not None else ()
        self._kinds = [kind for kind in kinds if kind is not None and not isinstance(kind, Text)]
        schemas, self.components = msgspec.json.schema_components(self._kinds, ref_template=_REFERENCE)
        self._schemas = list(schemas)

    def schema_of(self, kind: Any) -> dict[str, Any]:
        if isinstance(kind, Either):
            return {"anyOf": [self.schema_of(kind.first), self.schema_of(kind.second)]}
        return next(schema for known, schema in zip(self._kinds, self._schemas, strict=True) if known is kind)
