"""Formatting of times. The REST API has milliseconds since 1970."""

from __future__ import annotations

import time


def format_time(ms: int | None) -> str:
    """A point in time, in the local time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000)) if ms is not None else "-"


def format_age(ms: int | None, now_ms: int | None = None) -> str:
    """A point in time relative to now, or its date if it is long ago."""
    if ms is None:
        return "-"
    seconds = max(0, (int(time.time() * 1000) if now_ms is None else now_ms) - ms) // 1000
    for unit, size, limit in (("s", 1, 60), ("m", 60, 3600), ("h", 3600, 86400), ("d", 86400, 30 * 86400)):
        if seconds < limit:
            return f"{seconds // size}{unit} ago"
    return time.strftime("%Y-%m-%d", time.localtime(ms / 1000))


def format_duration(start_ms: int | None, end_ms: int | None, now_ms: int | None = None) -> str:
    """The time from start to end, or to now if there is no end yet."""
    if start_ms is None:
        return "-"
    end = end_ms if end_ms is not None else now_ms if now_ms is not None else int(time.time() * 1000)
    ms = max(0, end - start_ms)
    if ms < 10_000:
        return f"{ms / 1000:.1f}s"
    seconds = ms // 1000
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes:02}m"
    return f"{hours // 24}d{hours % 24:02}h"
