"""Template references in commands, like ``<% $parameters.x %>``. They insert values, nothing is evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from paiprotocol.jobs.limits import ExpansionBudget

SCOPES = ("parameters", "secrets", "data", "output", "script")

_TAG = re.compile(r"<%([^<%]*)%>")
_REFERENCE = re.compile(r"\$(\w+)((?:\.[^.\[\]\s]+|\[\d{1,9}\])*)")
_MISSING = object()


def render(text: str, scopes: Mapping[str, Any], budget: ExpansionBudget | None = None) -> str:
    """``text`` with every reference into ``scopes`` (``{"parameters": {...}, ...}``) replaced by its value.

    Unresolved references stay, as ``<% $name %>``. Inserted values are not expanded again. The inserted text
    is spent from ``budget``; without one, it may be as long as a whole job.
    """
    if "<%" not in text:
        return text
    budget = budget or ExpansionBudget()
    # Of each value once: a long list that is inserted often is expensive to convert.
    texts: dict[int, str] = {}

    def value(match: re.Match[str]) -> str:
        name = match.group(1).strip()
        target = _lookup(name, scopes)
        if target is _MISSING or target is None:
            return f"<% {name} %>" if name.startswith("$") else match.group()
        inserted = texts.get(id(target))
        if inserted is None:
            inserted = texts[id(target)] = as_text(target)
        budget.spend(len(inserted))
        return inserted

    return _TAG.sub(value, text)


def references(text: str) -> Iterator[tuple[str, str]]:
    """Each reference in ``text`` as (scope, whole name): ``("parameters", "$parameters.lr")``."""
    if "<%" not in text:
        return
    for match in _TAG.finditer(text):
        name = match.group(1).strip()
        if reference := _REFERENCE.fullmatch(name):
            yield reference.group(1), name


def is_only_references(text: str, scope: str) -> bool:
    """Whether ``text`` has references into this scope, and nothing else."""
    scopes = {name for name, _ in references(text)}
    return scopes == {scope} and not _TAG.sub("", text).strip()


def resolves(name: str, scopes: Mapping[str, Any]) -> bool:
    """Whether a reference has a value."""
    return _lookup(name, scopes) not in (_MISSING, None)


def _lookup(name: str, scopes: Mapping[str, Any]) -> Any:
    reference = _REFERENCE.fullmatch(name)
    if reference is None or reference.group(1) not in scopes:
        return _MISSING
    target = scopes[reference.group(1)]
    path = reference.group(2).replace("[", ".").replace("]", "")
    for part in path.split(".")[1:]:
        if isinstance(target, Mapping):
            target = target.get(part, _MISSING)
        elif isinstance(target, list | tuple) and part.isdecimal() and int(part) < len(target):
            target = target[int(part)]
        else:
            return _MISSING
    return target


def as_text(value: Any) -> str:
    """A value as it is inserted: numbers as JavaScript prints them, so all clusters run the same command."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return ",".join("" if item is None else as_text(item) for item in value)
    if isinstance(value, Mapping):
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _number(value: float) -> str:
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    if "e" not in text:
        return text
    digits, _, exponent = text.partition("e")
    power = int(exponent)
    if -6 <= power < 0:
        from decimal import Decimal

        return format(Decimal(text), "f")
    return f"{digits}e{'+' if power > 0 else ''}{power}"
