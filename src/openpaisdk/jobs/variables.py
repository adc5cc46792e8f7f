"""Environment variables of a job: the values of ``--env`` and ``--secret``."""

from __future__ import annotations

import os

from openpaisdk.jobs.command import as_text
from openpaisdk.jobs.option_values import items_of
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from openpaisdk.jobs.option_values import Items

    Variables = Items | Mapping[str, object]


def parse_variables(
    env: Variables | None, secrets: Variables | None
) -> tuple[dict[str, str], dict[str, str]]:
    """The values of ``--env`` and of ``--secret``."""
    plain, secret = read_variables(env, "--env"), read_variables(secrets, "--secret")
    if both := [name for name in plain if name in secret]:
        raise UsageError(f"{both[0]} is given with --env and with --secret: use only one of them.")
    return plain, secret


def read_variables(given: Variables | None, option: str) -> dict[str, str]:
    """Variables by name; one without a value (a bare NAME, or None in Python) has the value it has here."""
    pairs: list[tuple[str, object]]
    if isinstance(given, dict):
        pairs = [(str(name), value) for name, value in given.items()]
    else:
        split = (item.partition("=") for item in items_of(given, option))
        pairs = [(name, value if equals else None) for name, equals, value in split]
    out: dict[str, str] = {}
    for name, value in pairs:
        if not name.isidentifier() or not name.isascii():
            shown = "..." if option == "--secret" else name if value is None else f"{name}={value}"
            raise UsageError(f"{option} {shown}: use NAME=value; a name has only letters, digits and _.")
        text = as_text(_value_from_environment(name, option) if value is None else str(value))
        if "\0" in text:
            raise UsageError(f"{option} {name}: a variable cannot contain a NUL character.")
        out[name] = text
    return out


def _value_from_environment(name: str, option: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise UsageError(
            f"{option} {name}: there is no such variable here; use {option} {name}=value."
        ) from None
