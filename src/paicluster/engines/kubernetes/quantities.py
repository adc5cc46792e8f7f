"""Quantities of Kubernetes, such as ``500m``, ``16Gi`` or ``2``."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    **{name: Decimal(10 ** (3 * power)) for power, name in enumerate("MGTPE", 2)},
    **{f"{name}i": Decimal(1024**power) for power, name in enumerate("KMGTPE", 1)},
}


def number(quantity: str | None) -> Decimal:
    """The value of a quantity; 0 for one that cannot be read."""
    text = (quantity or "").strip()
    digits = text.rstrip("numkKMGTPEi") or text
    try:
        # An exponent, as in 12e6, has no suffix.
        return Decimal(digits) * _SUFFIXES[text[len(digits) :]]
    except (InvalidOperation, KeyError):
        return Decimal(0)
