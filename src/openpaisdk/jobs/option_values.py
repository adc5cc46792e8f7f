"""Parsers of option values: memory, durations, timestamps, ports, arrays, dependencies."""

from __future__ import annotations

from openpaisdk.errors import UsageError

MAX_PORTS = 99
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def memory_mb(text: str) -> int:
    """``512``, ``512m``, ``4g`` or ``4GB`` as megabytes."""
    amount = text.strip().lower().removesuffix("b").strip()
    unit = 1
    if amount[-1:] in ("m", "g", "t"):
        unit = {"m": 1, "g": 1024, "t": 1024 * 1024}[amount[-1]]
        amount = amount[:-1]
    try:
        size = int(float(amount) * unit)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise UsageError(
            f"{text!r} is not an amount of memory: use a form like 4g, or a number of megabytes."
        )
    return size


def seconds(text: str) -> int:
    """``90``, ``90s``, ``30m``, ``1.5h``, ``1d`` or ``1d12h`` as seconds."""
    total, number = 0.0, ""
    try:
        for c in text.strip().lower():
            if c.isdigit() or c == ".":
                number += c
                continue
            total += float(number) * _SECONDS[c]
            number = ""
        total += float(number) if number else 0.0
        whole = int(total)
    except (ValueError, KeyError, OverflowError):
        whole = 0
    if whole < 1:
        raise UsageError(f"{text!r} is not a duration: use a form like 90s, 30m, 2h or 1d.")
    return whole


def timestamp_ms(text: str) -> int:
    """A past time in milliseconds since 1970: ``2h`` ago, or a date, with or without time of day."""
    import time

    try:
        return int((time.time() - seconds(text)) * 1000)
    except UsageError:
        pass
    for form in ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"):
        try:
            return int(time.mktime(time.strptime(text.strip().replace("T", " "), form)) * 1000)
        except (ValueError, OverflowError):
            continue
    raise UsageError(f"{text!r} is not a time: use a duration like 2h or 3d, or a date like 2026-11-15.")


def port_counts(items: list[str]) -> dict[str, int]:
    """``label=count`` of each ``--ports``. A count above 99 is rejected: it is meant as a port number."""
    counts: dict[str, int] = {}
    for item in items:
        label, _, count = item.partition("=")
        if not label.isidentifier() or not label.isascii() or not count.isdecimal() or int(count) < 1:
            raise UsageError(f"{item!r} is not a valid port request: use label=count, like --ports http=1.")
        if int(count) > MAX_PORTS:
            raise UsageError(
                f"--ports {item}: the number says how many ports, and {count} is too many.",
                hint=f"Ports are assigned; the job reads them from $PAI_CONTAINER_HOST_{label}_PORT_LIST, "
                "and pai job-status shows them.",
            )
        counts[label] = int(count)
    return counts


def array_size(text: str) -> tuple[int, int]:
    """``100`` or ``100%8`` as (number of tasks, how many may run at a time; 0: all)."""
    count, percent, limit = text.partition("%")
    if not count.isdecimal() or int(count) < 1 or (percent and (not limit.isdecimal() or int(limit) < 1)):
        raise UsageError(f"--array {text}: use the number of tasks, like 100, or 100%8 for 8 at a time.")
    return int(count), int(limit) if percent else 0


def dependency(text: str) -> dict[str, object]:
    """``job`` or ``job:end`` of an ``--after``, as an entry of ``extras.openpaisdk.after``."""
    job, colon, on = text.partition(":")
    if not job or (colon and on not in ("success", "end")):
        raise UsageError(
            f"--after {text}: use the name of a job, with :end if it may also fail, like train:end."
        )
    return {"job": job, "on": on} if colon else {"job": job}
