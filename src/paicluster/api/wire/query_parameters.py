"""Parameters of a request's query, within limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from starlette.requests import Request

from paiprotocol.errors import InvalidParameters

MAX_INT = 2**63 - 1
Choice = TypeVar("Choice", bound=str)


def int_param(value: str | None, name: str, default: int | None = None, maximum: int = MAX_INT) -> int:
    """An integer of the query; required unless there is a default."""
    if not value and default is not None:
        return default
    # `isdigit` alone accepts superscripts, and `int` raises its own error for thousands of digits.
    if not value or not value.isascii() or not value.isdigit():
        raise InvalidParameters(f'"{name}" must be a whole number of 0 or more, not {_short(value)}.')
    if len(value) > 19 or int(value) > maximum:
        raise InvalidParameters(f'"{name}" must be less than or equal to {maximum}.')
    return int(value)


def choice_param(value: str | None, name: str, allowed: tuple[Choice, ...]) -> Choice:
    """One of the allowed values; by default the first one."""
    if not value:
        return allowed[0]
    for choice in allowed:
        if choice == value:
            return choice
    raise InvalidParameters(f'"{name}" must be one of {", ".join(allowed)}, not {value[:100]!r}.')


def bool_param(query: Mapping[str, str], name: str) -> bool:
    """Whether a flag of the query is ``true``."""
    return query.get(name, "").lower() == "true"


MAX_PAGE_SIZE = 50_000


def page_params(request: Request) -> tuple[int, int]:
    """``offset`` and ``limit``, our addition to lists that OpenPAI always returns whole."""
    get = request.query_params.get
    return (
        int_param(get("offset"), "offset", 0),
        int_param(get("limit"), "limit", MAX_PAGE_SIZE, MAX_PAGE_SIZE),
    )


def _short(value: str | None) -> str:
    text = value or ""
    return repr(text if len(text) <= 40 else text[:40] + "…")
