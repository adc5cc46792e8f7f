"""Query parameters with Hadoop's rules: names in any case, values checked."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from paiprotocol.errors import InvalidParameters

_MAX_LONG = 2**63 - 1
_MAX_FIELDS = 200


class Parameters:
    """Parameters of one request."""

    def __init__(self, query: bytes):
        try:
            pairs = parse_qsl(
                query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
            )
        except ValueError:
            raise InvalidParameters("The query of the request is not UTF-8 text, percent-encoded.") from None
        self._values: dict[str, str] = {}
        for name, value in pairs:
            # Of duplicates the first one counts.
            self._values.setdefault(name.lower(), value)

    def text(self, name: str, default: str = "") -> str:
        value = self._values.get(name)
        return default if value is None or value == "" or value == "null" else value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false"):
            raise bad_value(name, value, "is neither true nor false")
        return value == "true"

    def number(self, name: str, default: int | None = None, *, minimum: int = 0) -> int | None:
        value = self.text(name)
        if not value:
            return default
        if not re.fullmatch(r"-?[0-9]{1,19}", value) or abs(int(value)) > _MAX_LONG:
            raise bad_value(name, value, "is not a number of 64 bits")
        if int(value) < minimum:
            raise bad_value(name, value, f"is less than {minimum}")
        return int(value)

    def mode(self, name: str = "permission") -> int | None:
        value = self.text(name)
        if not value:
            return None
        if not re.fullmatch(r"[0-7]{1,5}", value) or int(value, 8) > 0o1777:
            raise bad_value(name, value, "is not an octal number from 0 to 1777")
        return int(value, 8)


def bad_value(name: str, value: str, reason: str) -> InvalidParameters:
    shown = value if len(value) <= 60 else value[:60] + "…"
    return InvalidParameters(f'Invalid value for webhdfs parameter "{name}": "{shown}" {reason}')
