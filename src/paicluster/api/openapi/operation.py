"""Building blocks of the descriptions: operation, body, query parameter, base classes of the types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]


def name_of(handler: Handler) -> str:
    """Key of a handler in the operations: its module within the API, and its name."""
    module = handler.__module__.removeprefix("paicluster.api.")
    return f"{module}.{getattr(handler, '__name__', '?')}"


JSON = "application/json"
TEXT = "text/plain"
YAML = "text/yaml"
FORM = "application/x-www-form-urlencoded"


class WireModel(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Base of JSON objects with exactly these keys, in camel case."""


class OpenModel(msgspec.Struct, rename="camel"):
    """As `WireModel`, for objects that may have further keys."""


class Problem(WireModel):
    """Body of every error response."""

    code: str
    message: str
    hint: str | msgspec.UnsetType = msgspec.UNSET


class Message(WireModel):
    """Response with a message only."""

    message: str


class MessageWithStatus(WireModel):
    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Text:
    """A body that is not JSON, or of which only the media type is described."""

    media: str = TEXT
    binary: bool = False


@dataclass(frozen=True, slots=True)
class Either:
    """JSON of one of two types."""

    first: Any
    second: Any


# Content of a body: a type, a `Text`, no body (None), or a tuple of alternatives by media type.
Content = Any


@dataclass(frozen=True, slots=True)
class Query:
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


@dataclass(frozen=True, slots=True)
class Body:
    """Request body, by media type."""

    kinds: Mapping[str, Any]
    required: bool = True


def json_or_form(kind: Any) -> Body:
    return Body({JSON: kind, FORM: kind})


@dataclass(frozen=True, slots=True)
class Operation:
    """Description of one handler.

    ``errors`` need not list the implied statuses: 401 and 403 where a token is required, 400 and 413 where a
    body is sent, 404 where the path has parameters, 429, 500 and 503 everywhere.
    """

    summary: str
    tag: str
    responses: Mapping[int, Content]
    errors: tuple[int, ...] = ()
    query: tuple[Query, ...] = ()
    body: Body | None = None
    # Whether a token is required.
    token: bool = True
