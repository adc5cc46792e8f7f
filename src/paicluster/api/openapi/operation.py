"""The words a route is described in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]


def name_of(handler: Handler) -> str:
    """What a handler is called here: its module within the API, and its name."""
    module = handler.__module__.removeprefix("paicluster.api.")
    return f"{module}.{getattr(handler, '__name__', '?')}"


JSON = "application/json"
TEXT = "text/plain"
YAML = "text/yaml"
FORM = "application/x-www-form-urlencoded"


class WireModel(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The base of what goes over the wire: these keys, all of them, and no others."""


class OpenModel(msgspec.Struct, rename="camel"):
    """As `Wire`, for what may have more keys."""


class Problem(WireModel):
    """Every refusal."""

    code: str
    message: str
    hint: str | msgspec.UnsetType = msgspec.UNSET


class Message(WireModel):
    """An answer that is a sentence."""

    message: str


class SaidWithStatus(WireModel):
    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Text:
    """A body that is not JSON, or of which only its type is promised."""

    media: str = TEXT
    binary: bool = False


@dataclass(frozen=True, slots=True)
class Either:
    """JSON of one of two types."""

    one: Any
    other: Any


# What a body can be: a type, a text, nothing at all (None), or one of several (a tuple).
Content = Any


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the query. ``kind`` is the type of its value."""

    name: str
    kind: Any = str
    required: bool = False
    about: str = ""


# A page of a list that is otherwise whole.
PAGE = (
    Query("offset", Annotated[int, msgspec.Meta(ge=0)]),
    Query("limit", Annotated[int, msgspec.Meta(ge=0, le=50000)]),
)


@dataclass(frozen=True, slots=True)
class Body:
    """What a request brings, by media type."""

    kinds: Mapping[str, Any]
    required: bool = True


def json_or_form(kind: Any) -> Body:
    return Body({JSON: kind, FORM: kind})


@dataclass(frozen=True, slots=True)
class Operation:
    """One handler.

    What follows from the rest need not be said in ``errors``: 401 where a token is needed, 400 and 413 where
    something is sent, 404 where the address has parameters, 429, 500 and 503 everywhere.
    """

    summary: str
    tag: str
    answers: Mapping[int, Content]
    errors: tuple[int, ...] = ()
    query: tuple[Query, ...] = ()
    body: Body | None = None
    # Whether it needs a token.
    token: bool = True
