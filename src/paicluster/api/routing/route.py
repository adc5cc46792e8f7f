"""Declaration of a route, beside its handler: all that the server and its documentation know of it.

    route = Routes("job")

    @route(
        "PUT /api/v2/jobs/{framework}/tag",
        authority=JOBS,
        summary="Tag a job",
    )
    async def add_tag(request: Request, tag: Tag) -> MessageWithStatus: ...

The body is decoded into the type of the second parameter, and the response is the JSON of the returned value.
A handler may instead read its body itself, or return a `Response`. The application, `/openapi.json`, the
bounds of bodies and tables of docs/contributing are derived from the declaration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.routing.authority import Authority

# Of a request, or of a request and its decoded body; returns a response, or a value that becomes one.
Handler = Callable[..., Awaitable[Any]]
# Of the application.
Responder = Callable[[Request], Awaitable[Response]]
_H = TypeVar("_H", bound=Handler)
# Raises for requests whose body is not to be read.
Guard = Callable[[Request], Awaitable[object]]
# Of what reads the body and calls the handler, and of the request; returns the value of that, or a `Reply`.
Around = Callable[[Callable[[Request], Awaitable[Any]], Request], Awaitable[Any]]


class Endpoint(NamedTuple):
    """What the application calls for a request, and what makes a response of the value."""

    handle: Callable[[Request], Awaitable[Any]]
    # None: it is a response.
    render: Callable[[Any], Response] | None


JSON = "application/json"
TEXT = "text/plain"
YAML = "text/yaml"
FORM = "application/x-www-form-urlencoded"
OCTET_STREAM = "application/octet-stream"

MAX_FIELDS_BYTES = 1 << 20
"""Body with the fields of a request by an authenticated caller."""
MAX_ANONYMOUS_BYTES = 64 << 10
"""Body of a request that is read before its caller is authenticated: a login, a query of metrics."""


class Bound(Enum):
    """Bound of a body that is no constant; the values are the words of docs/contributing/bounds.md."""

    BODY_SETTING = "body-mb"
    SOURCES_SETTING = "sources-mb"
    STREAMED = "streamed"
    IN_PARTS = "in parts"


class Rate(Enum):
    """Rate limit of a route, beside that of all requests of an address."""

    LISTS = "lists"
    SUBMISSIONS = "submissions"
    # Of failed logins.
    LOGINS = "logins"


class Audit(Enum):
    """Which requests of a route the audit log has."""

    # All but GET and HEAD.
    CHANGES = "changes"
    ALWAYS = "always"
    NEVER = "never"


class Text(msgspec.Struct, frozen=True):
    """Content that is not JSON, or of which only the media type is described."""

    media: str = TEXT
    binary: bool = False


class Either(msgspec.Struct, frozen=True):
    """JSON of one of two types."""

    first: Any
    second: Any


# Content of a response: a type, a `Text`, nothing (None), or a tuple of alternatives by media type.
Content = Any


class Query(msgspec.Struct, frozen=True):
    """Query parameter. ``kind`` is the type of its value."""

    name: str
    kind: Any = str
    required: bool = False
    description: str = ""


# Paging of a list that is otherwise returned whole.
PAGE = (
    Query("offset", Annotated[int, msgspec.Meta(ge=0)]),
    Query("limit", Annotated[int, msgspec.Meta(ge=0, le=50000)]),
)


class Body(msgspec.Struct, frozen=True):
    """Body of a request; ``limit`` in bytes.

    ``kinds`` are types by media type of a body that the handler reads itself; without them it is not
    described. ``media`` are the media types of one that is decoded into the handler's parameter.
    """

    kinds: Mapping[str, Any] = {}
    required: bool = True
    limit: int | Bound = MAX_FIELDS_BYTES
    media: tuple[str, ...] = (JSON, FORM)
    # Decoded, an empty body has no fields; else it is no valid JSON.
    may_be_empty: bool = True


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A path and its handler.

    ``errors`` need not list the implied statuses: 401 and 403 where a token is required, 400 and 413 where a
    body is read, 400 where there is a query, 404 where the path has parameters, 429, 500 and 503 everywhere.
    """

    handler: Handler
    methods: tuple[str, ...]
    path: str
    authority: Authority
    # Without one the route is not described.
    summary: str = ""
    tag: str = ""
    # Status of the value that the handler returns.
    status: int = 200
    # Contents of other responses, or of all if the handler returns a `Response`.
    returns: Mapping[int, Content] = {}
    errors: tuple[int, ...] = ()
    query: tuple[Query, ...] = ()
    # None: not read.
    body: Body | None = None
    # Comes before the body is decoded; by default the caller is authenticated, if the route needs a token.
    guard: Guard | None = None
    # Authenticates the caller instead, and makes replies of a dialect of the errors of body and handler.
    around: Around | None = None
    rate: Rate | None = None
    audit: Audit = Audit.CHANGES
    # Another method is 404 on the routes of OpenPAI, as in OpenPAI: some of its clients test for that.
    other_methods: int = 404

    @property
    def needs_token(self) -> bool:
        return bool(self.authority.kinds)

    def bound(self, method: str) -> int | Bound | None:
        """Bound of the body of a request; None if the handler reads none."""
        return None if self.body is None or method in ("GET", "HEAD") else self.body.limit


class Routes:
    """Decorator of the handlers of one module, which collects their routes.

    The arguments are defaults for all of them: ``returns`` and ``around`` for those that need a token.
    """

    def __init__(
        self,
        tag: str = "",
        *,
        returns: Mapping[int, Content] | None = None,
        around: Around | None = None,
        audit: Audit = Audit.CHANGES,
        other_methods: int = 404,
    ) -> None:
        self._tag = tag
        self._returns = returns or {}
        self._around = around
        self._audit = audit
        self._other_methods = other_methods
        self._routes: list[Route] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def __call__(
        self,
        *targets: str,
        authority: Authority,
        summary: str = "",
        tag: str = "",
        status: int = 200,
        returns: Mapping[int, Content] | None = None,
        errors: tuple[int, ...] = (),
        query: tuple[Query, ...] = (),
        body: Body | None = None,
        guard: Guard | None = None,
        around: Around | None = None,
        rate: Rate | None = None,
        audit: Audit | None = None,
        other_methods: int | None = None,
    ) -> Callable[[_H], _H]:
        """Declare a route for each of the ``targets``: methods and a path, both with alternatives.

        `GET|PUT /api/v2/(users|user)/me` is two methods on two paths. Numbers in a path are `{name:count}`.
        A handler with a parameter for its body needs no ``body``, unless the defaults do not fit.
        """
        shared = self._returns if authority.kinds else {}
        shared_around = self._around if authority.kinds else None

        def declare(handler: _H) -> _H:
            declared_body = body if body is not None or not takes_body(handler) else Body()
            for target in targets:
                methods, _, paths = target.partition(" ")
                for path in _alternatives(paths):
                    declared = Route(
                        handler=handler,
                        methods=tuple(methods.split("|")),
                        path=path,
                        authority=authority,
                        summary=summary,
                        tag=tag or self._tag,
                        status=status,
                        returns={**shared, **(returns or {})},
                        errors=errors,
                        query=query,
                        body=declared_body,
                        guard=guard,
                        around=around or shared_around,
                        rate=rate,
                        audit=audit or self._audit,
                        other_methods=other_methods or self._other_methods,
                    )
                    self._routes.append(declared)
            return handler

        return declare


def takes_body(handler: Handler) -> bool:
    """Whether a handler has a parameter for its decoded body, beside the request."""
    count: int = handler.__code__.co_argcount
    return count - hasattr(handler, "__self__") > 1


def _alternatives(pattern: str) -> list[str]:
    """A pattern with each of its alternatives: `/(users|user)/me` is `/users/me` and `/user/me`."""
    before, opening, rest = pattern.partition("(")
    if not opening:
        return [pattern]
    choices, _, after = rest.partition(")")
    return [path for choice in choices.split("|") for path in _alternatives(before + choice + after)]
