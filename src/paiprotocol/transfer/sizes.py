"""Sizes of files as people read them."""

from __future__ import annotations


def format_size(size: float) -> str:
    """Human-readable size: 18 MB, 1.2 GB."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1024
        if size < 1000:
            return f"{size:.1f} {unit}" if size < 9.95 else f"{size:.0f} {unit}"
    return f"{size / 1024:.1f} PB"
