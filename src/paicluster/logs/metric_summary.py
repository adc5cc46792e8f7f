"""Summary of metrics: how often each was logged, its last, lowest and highest value and their steps. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

# Length of a name; longer ones are in the file only.
MAX_NAME_LENGTH = 255
_MAX_STEP = 1 << 63


class SeriesSummary:
    """Values of one metric. NaN may be the last value, never the lowest or the highest; None: all are NaN."""

    __slots__ = ("count", "last", "last_step", "max", "max_step", "min", "min_step")

    def __init__(self) -> None:
        self.count = 0
        self.last = 0.0
        self.last_step = 0
        self.min: float | None = None
        self.min_step: int | None = None
        self.max: float | None = None
        self.max_step: int | None = None

    def add(self, step: int, value: float) -> None:
        self.count += 1
        self.last = value
        self.last_step = step
        if value != value:
            return
        if self.min is None or value < self.min:
            self.min = value
            self.min_step = step
        if self.max is None or value > self.max:
            self.max = value
            self.max_step = step


class LoggedLine(msgspec.Struct):
    """Values of a step; time and attempt as the line has them, None without one."""

    step: int
    values: dict[str, float | int | str]
    time: Any = None
    attempt: Any = None


_decode_lines = msgspec.json.Decoder(LoggedLine).decode_lines
_decode_line = msgspec.json.Decoder(LoggedLine).decode


def summarize(lines: bytes) -> tuple[dict[str, SeriesSummary], bool]:
    """Summary of each metric in these lines, and whether a name was left out. Malformed lines are skipped."""
    summaries: dict[str, SeriesSummary] = {}
    is_omitted = False
    for line in logged_lines(lines):
        step, values = line.step, line.values
        for name, value in values.items():
            summary = summaries.get(name)
            if summary is None:
                if not is_storable(name):
                    is_omitted = True
                    continue
                summary = SeriesSummary()
            try:
                # Also reads what is written for NaN and infinity.
                number = float(value)
            except (ValueError, TypeError, OverflowError):
                continue
            summary.add(step, number)
            summaries[name] = summary
    return summaries, is_omitted


def is_storable(name: str) -> bool:
    """Whether it can be the name of a row: of a text of that length, which is valid UTF-8."""
    if len(name) > MAX_NAME_LENGTH or "\0" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def logged_lines(lines: bytes) -> list[LoggedLine]:
    """Lines of a file of metrics, without the malformed ones."""
    try:
        parsed = _decode_lines(lines)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parsed = list(_checked_lines(lines))
    return [line for line in parsed if -_MAX_STEP <= line.step < _MAX_STEP]


def _checked_lines(lines: bytes) -> Iterator[LoggedLine]:
    """Line by line. Programs may write what strict JSON has not, such as NaN."""
    for text in lines.split(b"\n"):
        try:
            yield _decode_line(text)
            continue
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        try:
            fields = json.loads(text)
            step, values = int(fields["step"]), fields["values"]
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        if isinstance(values, dict):
            yield LoggedLine(step, values, fields.get("time"), fields.get("attempt"))
