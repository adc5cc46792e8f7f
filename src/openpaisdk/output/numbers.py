"""Numbers as JSON has them."""

from __future__ import annotations


def plain_number(value: float) -> float | str:
    """The number; where JSON has none, its name as clusters write it."""
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
