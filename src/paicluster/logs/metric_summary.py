"""Summary of metrics: how often each was logged, its last, lowest and highest value and their steps. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

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


class _Line(msgspec.Struct):
    step: int
    values: dict[str, float | int | str]


_decode_lines = msgspec.json.Decoder(_Line).decode_lines
_decode_line = msgspec.json.Decoder(_Line).decode


def summarize(lines: bytes) -> tuple[dict[str, SeriesSummary], bool]:
    """Summary of each metric in these lines, and whether a name was left out. Malformed lines are skipped."""
    summaries: dict[str, SeriesSummary] = {}
    is_omitted = False
    for step, values in _steps(lines):
        if not -_MAX_STEP <= step < _MAX_STEP:
            continue
        for name, value in values.items():
            summary = summaries.get(name)
            if summary is None:
                if not _is_storable(name):
                    is_omitted = True
                    continue
                summary = SeriesSummary()
            try:
                # Also reads what is written for NaN and infinity.
                number = float(value)  # type: ignore[arg-type]
            except (ValueError, TypeError, OverflowError):
                continue
            summary.add(step, number)
            summaries[name] = summary
    return summaries, is_omitted


def _is_storable(name: str) -> bool:
    if len(name) > MAX_NAME_LENGTH or "\0" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _steps(lines: bytes) -> Iterator[tuple[int, Mapping[str, object]]]:
    try:
        parsed = _decode_lines(lines)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield from _checked_steps(lines)
        return
    for line in parsed:
        yield line.step, line.values


def _checked_steps(lines: bytes) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Line by line, without the malformed ones. Programs may write what strict JSON has not, such as NaN."""
    for text in lines.split(b"\n"):
        try:
            line = _decode_line(text)
            yield line.step, line.values
            continue
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        try:
            fields = json.loads(text)
            step, values = int(fields["step"]), fields["values"]
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        if isinstance(values, dict):
            yield step, values
