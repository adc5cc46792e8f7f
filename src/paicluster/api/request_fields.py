"""Fields of a request's body, read one by one; error messages are OpenPAI's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from openpaisdk.errors import InvalidParameters
from paicluster.api.responses import MAX_FIELDS_BYTES, mapping_of, read_body

USERNAME = re.compile(r"[\w.-]+", re.ASCII)
GROUPNAME = re.compile(r"[A-Za-z0-9_]+")
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")
_MAX_NAME_LENGTH = 255
# No user, group or storage has so many of anything; each may cost a query.
_MAX_ITEMS = 1000

_MISSING: Any = object()


async def fields_of(request: Request) -> Fields:
    """The fields of a JSON or form-encoded body; none when there is no body."""
    body = await read_body(request, MAX_FIELDS_BYTES)
    return Fields(mapping_of(request, body) if body.strip() else {})


class Fields:
    """The fields of a mapping. Each is read once; `end` raises an error for unknown fields."""

    def __init__(self, fields: Mapping[str, Any], where: str = ""):
        self._left = dict(fields)
        self._where = where

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def text(
        self,
        name: str,
        default: Any = _MISSING,
        *,
        min_length: int = 0,
        pattern: re.Pattern[str] | None = None,
    ) -> str:
        value = self._take(name, default)
        if not isinstance(value, str):
            raise self._invalid(name, "must be a string")
        if not value and (min_length or pattern):
            raise self._invalid(name, "is not allowed to be empty")
        if len(value) < min_length:
            raise self._invalid(name, f"length must be at least {min_length} characters long")
        if pattern is not None:
            if len(value) > _MAX_NAME_LENGTH:
                raise self._invalid(
                    name, f"length must be less than or equal to {_MAX_NAME_LENGTH} characters long"
                )
            if not pattern.fullmatch(value):
                shown = value if len(value) <= 40 else value[:40] + "…"
                raise self._invalid(
                    name, f'with value "{shown}" fails to match the required pattern: /^{pattern.pattern}$/'
                )
        return value

    def email(self, name: str, default: Any = _MISSING) -> str:
        value = self.text(name, default)
        if value and not _EMAIL.fullmatch(value):
            raise self._invalid(name, "must be a valid email")
        return value

    def flag(self, name: str, default: Any = _MISSING) -> bool:
        value = self._take(name, default)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self._invalid(name, "must be a boolean")
        return value

    def number(self, name: str, default: Any = _MISSING, *, minimum: float, maximum: float) -> float:
        value = self._take(name, default)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self._invalid(name, "must be a number") from None
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise self._invalid(name, "must be a number")
        if value < minimum:
            raise self._invalid(name, f"must be larger than or equal to {minimum:g}")
        if value > maximum:
            raise self._invalid(name, f"must be less than or equal to {maximum:g}")
        return value

    def whole_number_or_null(self, name: str, *, maximum: int) -> int | None:
        """A number without a fraction from 0 to ``maximum``, or null."""
        value = self._take(name, _MISSING)
        if value is None:
            return None
        number = Fields({name: value}, self._where).number(name, minimum=0, maximum=maximum)
        if number != int(number):
            raise self._invalid(name, "must be an integer")
        return int(number)

    def names(self, name: str, default: Any = _MISSING, *, pattern: re.Pattern[str]) -> list[str]:
        value = self._list(name, default)
        return [
            Fields({"": item}, f"{self._where}{name}[{index}]").text("", pattern=pattern)
            for index, item in enumerate(value)
        ]

    def mapping(self, name: str, default: Any = _MISSING) -> dict[str, Any]:
        value = self._take(name, default)
        if not isinstance(value, dict):
            raise self._invalid(name, "must be an object")
        return value

    def inner(self, name: str) -> Fields:
        """The fields of a nested object."""
        return Fields(self.mapping(name), f"{self._where}{name}.")

    def each(self, name: str, default: Any = _MISSING) -> list[Fields]:
        """The fields of each object in a list."""
        value = self._list(name, default)
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                raise self._invalid(f"{name}[{index}]", "must be an object")
        return [Fields(item, f"{self._where}{name}[{index}].") for index, item in enumerate(value)]

    def choice(self, name: str, *choices: str) -> str:
        value = self.text(name)
        if value not in choices:
            raise self._invalid(name, f"must be one of [{', '.join(choices)}]")
        return value

    def _list(self, name: str, default: Any) -> list[Any]:
        value = self._take(name, default)
        if not isinstance(value, list):
            raise self._invalid(name, "must be an array")
        if len(value) > _MAX_ITEMS:
            raise self._invalid(name, f"must contain less than or equal to {_MAX_ITEMS} items")
        return value

    def any(self, name: str) -> Any:
        return self._take(name, _MISSING)

    def end(self) -> None:
        for name in self._left:
            raise self._invalid(name, "is not allowed")

    def _take(self, name: str, default: Any) -> Any:
        value = self._left.pop(name, default)
        if value is _MISSING:
            raise self._invalid(name, "is required")
        return value

    def _invalid(self, name: str, problem: str) -> InvalidParameters:
        return InvalidParameters(f'"{(self._where + name)[:100]}" {problem}')
