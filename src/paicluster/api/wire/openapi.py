"""OpenAPI document, made from the declarations of the routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from paicluster.api.routing.route import JSON, Either, Query, Route, Text
from paicluster.api.wire.base import Problem
from paicluster.api.wire.handler_types import body_types, response_types

_PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")
_REFERENCE = "#/components/schemas/{name}"


def openapi_json(routes: Sequence[Route], version: str) -> bytes:
    """The OpenAPI document of these routes as JSON."""
    return msgspec.json.encode(_document(routes, version))


def _document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    types = _SchemaRegistry(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        entry = paths.setdefault(_PARAMETER.sub(r"{\1}", route.path), {})
        for method in route.methods:
            described = _operation(route, method, types)
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


def _operation(route: Route, method: str, types: _SchemaRegistry) -> dict[str, Any]:
    parameters = [_path_parameter(name, kind) for name, kind in _PARAMETER.findall(route.path)]
    parameters += [_query_parameter(query, types) for query in route.query]
    responses: dict[int, Any] = {
        status: _response(status, content, types) for status, content in response_types(route).items()
    }
    for status in _error_statuses(route):
        responses.setdefault(status, _response(status, None if method == "HEAD" else Problem, types))
    entry: dict[str, Any] = {
        "operationId": _operation_id(method, route.path),
        "summary": route.summary,
        "tags": [route.tag],
        "responses": {str(status): responses[status] for status in sorted(responses)},
    }
    if parameters:
        entry["parameters"] = parameters
    kinds = body_types(route)
    if route.body is not None and kinds and route.bound(method) is not None:
        entry["requestBody"] = {
            "required": route.body.required,
            "content": {media: _media_type(kind, types) for media, kind in kinds.items()},
        }
    if route.needs_token:
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


def _error_statuses(route: Route) -> Iterable[int]:
    yield from route.errors
    yield from (429, 500, 503)
    if route.needs_token:
        yield from (401, 403)
    if "{" in route.path:
        yield 404
    if route.query or route.body is not None:
        yield 400
    if route.body is not None:
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
    """JSON schemas of all types of the routes; each struct once, as a component."""

    def __init__(self, routes: Iterable[Route]) -> None:
        kinds: list[Any] = [Problem]
        for route in routes:
            kinds += [query.kind for query in route.query]
            for content in response_types(route).values():
                for kind in content if isinstance(content, tuple) else (content,):
                    kinds += (kind.first, kind.second) if isinstance(kind, Either) else (kind,)
            kinds += body_types(route).values()
        described = [kind for kind in kinds if kind is not None and not isinstance(kind, Text)]
        schemas, self.components = msgspec.json.schema_components(described, ref_template=_REFERENCE)
        self._schemas = {id(kind): schema for kind, schema in zip(described, schemas, strict=True)}

    def schema_of(self, kind: Any) -> dict[str, Any]:
        if isinstance(kind, Either):
            return {"anyOf": [self.schema_of(kind.first), self.schema_of(kind.second)]}
        return self._schemas[id(kind)]
