"""Bounds of one job document."""

from __future__ import annotations

MAX_DEPTH = 64
MAX_VALUES = 200_000
"""Values in one document; an alias counts as often as it is used."""
