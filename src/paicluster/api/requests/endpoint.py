"""Endpoint of a route: its handler, with the body decoded before it and its value encoded after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.route import Endpoint, Handler, Responder, Route, takes_body
from paicluster.api.wire import handler_types
from paicluster.api.wire.body_decoder import decode
from paicluster.api.wire.request_body import fields_of
from paicluster.api.wire.responses import Reply, encoded_response, json_response, reply_response

_RENDERERS: dict[str, Callable[..., Response]] = {"Reply": reply_response, "Encoded": encoded_response}


def endpoint_of(route: Route) -> Endpoint:
    handler = route.handler
    handle = _with_body(route) if takes_body(handler) else handler
    if route.around is not None:
        return Endpoint(partial(route.around, handle), partial(_any_response, status=route.status))
    if handler_types.returns_response(handler):
        return Endpoint(handle, None)
    render = _RENDERERS.get(handler_types.returned_name(handler), json_response)
    return Endpoint(handle, partial(render, status=route.status))


def _any_response(value: Any, status: int) -> Response:
    """Response of a route whose errors are values, of other types than that of its handler."""
    if isinstance(value, Response):
        return value
    return reply_response(value if isinstance(value, Reply) else Reply(value), status)


def responding(route: Route) -> Responder:
    """The endpoint of a route as one function from a request to its response."""
    handle, render = endpoint_of(route)
    if render is None:
        return handle

    async def respond(request: Request) -> Response:
        return render(await handle(request))

    return respond


def _with_body(route: Route) -> Handler:
    """The handler with its body, which is read once the guard let the request pass: requests of strangers
    must not fill the memory.
    """
    handler, body = route.handler, route.body
    assert body is not None
    guard = route.guard or (authenticate if route.needs_token and route.around is None else None)
    kind: type[Any] | None = None

    async def handle(request: Request) -> Any:
        nonlocal kind
        if guard is not None:
            await guard(request)
        is_read = request.scope["method"] not in ("GET", "HEAD")
        fields = await fields_of(request, may_be_empty=body.may_be_empty) if is_read else {}
        if kind is None:
            kind = handler_types.body_type(handler)
        return await handler(request, decode(kind, fields))

    return handle
