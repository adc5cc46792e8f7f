"""Parsers of option values: memory, durations, timestamps, ports, dependencies, lists.

Each takes what the command line gives (text) and what Python programs give (numbers, lists, mappings), so
that ``pai sub`` and ``Job.one_liner`` accept the same values and reject the others with the same sentences.
"""

from __future__ import annotations

import os

from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta
    from typing import Any

    Items = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

MAX_PORTS = 99
PRIORITIES = ("crit", "prod", "test", "oppo")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MEGABYTES = {"m": 1, "g": 1024, "t": 1024 * 1024}


def items_of(value: Items | None, option: str) -> list[str]:
    """The items of a list option. Text or a path alone is one item, never its letters."""
    if value is None or value == "":
        return []
    is_single = isinstance(value, str | os.PathLike | bytes | dict) or not hasattr(value, "__iter__")
    items: list[Any] = [value] if is_single else list(value)  # type: ignore[arg-type]
    for item in items:
        if not isinstance(item, str | os.PathLike):
            # The type alone: the value may be a secret.
            found = type(item).__name__ if is_single else f"a list with {type(item).__name__}"
            raise UsageError(f"{option} takes text, or a list of texts, not {found}.")
    return [os.fspath(item) for item in items]


def whole_number(value: object, low: int, option: str = "") -> int:
    """An integer of at least ``low``, given as a number or as text."""
    number = low - 1
    if isinstance(value, int | str) and not isinstance(value, bool):
        try:
            number = int(value)
        except ValueError:
            pass
    if number < low:
        prefix = f"{option}: " if option else ""
        raise UsageError(f"{prefix}{value!r} is not a whole number of at least {low}.")
    return number


def priority_class(value: str) -> str:
    """A priority class; empty for the cluster's default."""
    if value and value not in PRIORITIES:
        raise UsageError(f"priority: {value!r} is not a priority class: use {', '.join(PRIORITIES)}.")
    return value


def memory_mb(value: str | float) -> int:
    """``512m``, ``4g`` or ``4GB`` as megabytes. A number alone is rejected: it may mean either."""
    amount = str(value).strip().lower().removesuffix("b").strip()
    unit = amount[-1:]
    try:
        size = int(float(amount[:-1] if unit in _MEGABYTES else amount) * _MEGABYTES.get(unit, 1))
    except (ValueError, OverflowError):
        size = 0
    if size < 1 or isinstance(value, bool):
        raise UsageError(f"{value!r} is not an amount of memory: use a form like 4g or 512m.")
    if unit not in _MEGABYTES:
        raise UsageError(
            f"The memory {amount} has no unit: it may mean {amount} MB or {amount} GB.",
            hint=f"Write {amount}m for megabytes or {amount}g for gigabytes (--memoryMB takes megabytes).",
        )
    return size


def seconds(value: str | float | timedelta) -> int:
    """``90``, ``90s``, ``30m``, ``1.5h``, ``1d`` or ``1d12h`` as seconds; numbers are seconds, too."""
    try:
        whole = 0 if isinstance(value, bool) else int(_total_seconds(value))
    except (ValueError, KeyError, OverflowError, AttributeError):
        whole = 0
    if whole < 1:
        raise UsageError(f"{value!r} is not a duration: use a form like 90s, 30m, 2h or 1d.")
    return whole


def _total_seconds(value: str | float | timedelta) -> float:
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        return value.total_seconds()
    total, number = 0.0, ""
    for c in value.strip().lower():
        if c.isdigit() or c == ".":
            number += c
            continue
        total += float(number) * _SECONDS[c]
        number = ""
    return total + (float(number) if number else 0.0)


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


def port_counts(requests: Items | Mapping[str, int] | None) -> dict[str, int]:
    """``label=count`` of each ``--ports``, or the counts by label.

    The label is part of variable names, so ``-`` in it becomes ``_``. A count above 99 is rejected: it is
    meant as a port number.
    """
    if isinstance(requests, dict):
        pairs = [(str(label), str(count)) for label, count in requests.items()]
    else:
        pairs = [
            (label, count) for label, _, count in (r.partition("=") for r in items_of(requests, "ports"))
        ]
    counts: dict[str, int] = {}
    for written, count in pairs:
        label = written.replace("-", "_")
        if not label.isidentifier() or not label.isascii() or not count.isdecimal() or int(count) < 1:
            item = f"{written}={count}" if count else written
            raise UsageError(f"{item!r} is not a valid port request: use label=count, like --ports http=1.")
        if int(count) > MAX_PORTS:
            raise UsageError(
                f"--ports {written}={count}: the number says how many ports, and {count} is too many.",
                hint=f"Write {written}=1: the cluster assigns the port, and the job reads it from "
                f"${port_variable(label)}.",
            )
        if label in counts:
            raise UsageError(f"--ports {written}={count}: the label {label} is given twice.")
        counts[label] = int(count)
    return counts


def port_variable(label: str) -> str:
    """The variable from which a task reads its ports of a label."""
    return f"PAI_CONTAINER_HOST_{label.replace('-', '_')}_PORT_LIST"


def tags_of(value: Items | None) -> list[str]:
    """The tags of a job, each once."""
    return list(dict.fromkeys(check_tag(tag) for tag in items_of(value, "tags")))


def check_tag(tag: str) -> str:
    from paiprotocol.jobs.extras import tag_problem

    if problem := tag_problem(tag):
        from paiprotocol.jobs.problems import shorten

        raise UsageError(f"{shorten(tag)!r} cannot be a tag: {problem}.")
    return tag


def dependency(text: str) -> dict[str, object]:
    """``job`` or ``job:end`` of an ``--after``, as an entry of ``extras.openpaisdk.after``."""
    job, colon, on = text.partition(":")
    if not job or (colon and on not in ("success", "end")):
        raise UsageError(
            f"--after {text}: use the name of a job, with :end if it may also fail, like train:end."
        )
    return {"job": job, "on": on} if colon else {"job": job}
