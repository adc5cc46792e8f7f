"""Bounds of one job."""

from __future__ import annotations

MAX_DEPTH = 64
MAX_VALUES = 200_000
"""Values in one document; an alias counts as often as it is used."""
MAX_TASKS = 10_000
"""Tasks of one job."""
