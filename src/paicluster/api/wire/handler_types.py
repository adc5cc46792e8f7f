"""Types of a handler's body and response: its annotations are their declaration.

Which kind of handler it is, is read from the text of the annotations, at import. Types are resolved later,
for the first body and for `/openapi.json`: resolving those of all handlers would slow the server's start.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Any

from paicluster.api.routing.route import Content, Either, Handler, Route, takes_body
from paicluster.api.wire.responses import Encoded, Reply


def body_type(handler: Handler) -> type[Any]:
    """The type of the body of a handler that takes one."""
    name = handler.__code__.co_varnames[1]
    kind: type[Any] = _hints(handler)[name]
    return kind


def body_types(route: Route) -> dict[str, Any]:
    """Types of a route's body by media type; none where it is not described."""
    if route.body is None:
        return {}
    if takes_body(route.handler):
        return dict.fromkeys(route.body.media, body_type(route.handler))
    return dict(route.body.kinds)


def returned_name(handler: Handler) -> str:
    """Name of what a handler returns: of a class of responses, `Reply`, `Encoded`, or a wire type."""
    annotation = handler.__annotations__.get("return", "Response")
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return text.partition("[")[0].rpartition(".")[2]


def returns_response(handler: Handler) -> bool:
    """Whether a handler returns no value that is encoded."""
    return returned_name(handler).endswith(("Response", "NoReturn"))


def response_types(route: Route) -> dict[int, Content]:
    """Contents of a route's responses by status."""
    if returns_response(route.handler):
        return dict(route.returns)
    return {**route.returns, route.status: _content(route.handler)}


def returned_type(handler: Handler) -> Any:
    return _hints(handler)["return"]


@cache
def _content(handler: Handler) -> Content:
    kind = returned_type(handler)
    while typing.get_origin(kind) in (Reply, Encoded):
        (kind,) = typing.get_args(kind)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        # msgspec describes no union of two objects.
        return Either(*typing.get_args(kind))
    return kind


@cache
def _hints(handler: Handler) -> dict[str, Any]:
    return typing.get_type_hints(handler, include_extras=True)
