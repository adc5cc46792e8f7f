"""Numbers of metrics in JSON, which has no NaN and no infinity."""

from __future__ import annotations


def plain_number(value: float) -> float | str:
    """The number; where JSON has none, its name as tasks write it into their files."""
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
