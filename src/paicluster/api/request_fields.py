"""Reading a request's body field by field: what is wrong is said in the original's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from openpaisdk.errors import InvalidParameters
from paicluster.api.responses import mapping_of, read_body

USERNAME = re.compile(r"[\w.-]+", re.ASCII)
GROUPNAME = re.compile(r"[A-Za-z0-9_]+")
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")
_LONGEST_NAME = 255

_MISSING: Any = object()


async def fields_of(request: Request) -> Fields:
    """The fields of a JSON or form-encoded body; none when there is no body."""
    body = await read_body(request, 1 << 20)
    return Fields(mapping_of(request, body) if body.strip() else {})


class Fields:
    """Each field is taken once; `end` complains of those that nobody took."""

    def __init__(self, given: Mapping[str, Any], where: str = ""):
        self._left = dict(given)
        self._where = where

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def text(
        self,
        name: str,
        default: Any = _MISSING,
        *,
        least: int = 0,
        pattern: re.Pattern[str] | None = None,
    ) -> str:
        value = self._take(name, default)
        if not isinstance(value, str):
            raise self._bad(name, "must be a string")
        if not value and (least or pattern):
            raise self._bad(name, "is not allowed to be empty")
        if len(value) < least:
            raise self._bad(name, f"length must be at least {least} characters long")
        if pattern is not None:
            if len(value) > _LONGEST_NAME:
                raise self._bad(name, f"length must be less than or equal to {_LONGEST_NAME} characters long")
            if not pattern.fullmatch(value):
                shown = value if len(value) <= 40 else value[:40] + "…"
                raise self._bad(
                    name, f'with value "{shown}" fails to match the required pattern: /^{pattern.pattern}$/'
                )
        return value

    def email(self, name: str, default: Any = _MISSING) -> str:
        value = self.text(name, default)
        if value and not _EMAIL.fullmatch(value):
            raise self._bad(name, "must be a valid email")
        return value

    def flag(self, name: str, default: Any = _MISSING) -> bool:
        value = self._take(name, default)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self._bad(name, "must be a boolean")
        return value

    def number(self, name: str, default: Any = _MISSING, *, least: float, most: float) -> float:
        value = self._take(name, default)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self._bad(name, "must be a number") from None
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise self._bad(name, "must be a number")
        if value < least:
            raise self._bad(name, f"must be larger than or equal to {least:g}")
        if value > most:
            raise self._bad(name, f"must be less than or equal to {most:g}")
        return value

    def names(self, name: str, default: Any = _MISSING, *, pattern: re.Pattern[str]) -> list[str]:
        value = self._take(name, default)
        if not isinstance(value, list):
            raise self._bad(name, "must be an array")
        return [
            Fields({"": item}, f"{self._where}{name}[{place}]").text("", pattern=pattern)
            for place, item in enumerate(value)
        ]

    def mapping(self, name: str, default: Any = _MISSING) -> dict[str, Any]:
        value = self._take(name, default)
        if not isinstance(value, dict):
            raise self._bad(name, "must be an object")
        return value

    def inner(self, name: str) -> Fields:
        """The fields of an object that is a field."""
        return Fields(self.mapping(name), f"{self._where}{name}.")

    def each(self, name: str, default: Any = _MISSING) -> list[Fields]:
        """The fields of each object of a list."""
        value = self._take(name, default)
        if not isinstance(value, list):
            raise self._bad(name, "must be an array")
        for place, item in enumerate(value):
            if not isinstance(item, dict):
                raise self._bad(f"{name}[{place}]", "must be an object")
        return [Fields(item, f"{self._where}{name}[{place}].") for place, item in enumerate(value)]

    def choice(self, name: str, *choices: str) -> str:
        value = self.text(name)
        if value not in choices:
            raise self._bad(name, f"must be one of [{', '.join(choices)}]")
        return value

    def any(self, name: str) -> Any:
        return self._take(name, _MISSING)

    def end(self) -> None:
        for name in self._left:
            raise self._bad(name, "is not allowed")

    def _take(self, name: str, default: Any) -> Any:
        value = self._left.pop(name, default)
        if value is _MISSING:
            raise self._bad(name, "is required")
        return value

    def _bad(self, name: str, what: str) -> InvalidParameters:
        return InvalidParameters(f'"{(self._where + name)[:100]}" {what}')
