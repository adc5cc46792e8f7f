"""Settings as plain data, for administrators to read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

from paicluster.config.settings import Settings

_SECRET = re.compile(r"password|secret|token|credential", re.IGNORECASE)
_HIDDEN = "***"


def render_settings(settings: Settings) -> dict[str, object]:
    """All settings by name, with dashes as in `cluster.yaml`; the values of secrets are hidden."""
    return {name: _plain(value, name) for name, value in _members(settings)}


def _members(value: object) -> list[tuple[str, object]]:
    assert is_dataclass(value)
    return [(field.name.replace("_", "-"), getattr(value, field.name)) for field in fields(value)]


def _plain(value: object, name: str) -> object:
    if isinstance(value, str) and _SECRET.search(name):
        return _HIDDEN
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, range):
        return f"{value.start}-{value.stop - 1}" if value.start else ("any" if value else None)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, str(key)) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return {key.replace("_", "-"): _plain(item, key) for key, item in value._asdict().items()}
    if is_dataclass(value):
        return {key: _plain(item, key) for key, item in _members(value)}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, name) for item in value]
    return str(value)
