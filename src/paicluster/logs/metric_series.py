"""Values of metrics for plots: as many as one can show, with the extremes, in bounded memory."""

from __future__ import annotations

import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from paicluster.logs.metric_summary import is_storable, logged_lines
from paicluster.logs.task_metrics import read_metric_lines

# Points of one series, and of all series of a response together.
MAX_POINTS = 16_384
MAX_ALL_POINTS = 100_000
# Names of a task that are plotted, as many as it has summaries of.
MAX_NAMES = 1000
# Attempts and restarts of a series, the last ones.
MAX_SEGMENTS = 16
# Read of a file for one response, and for how long.
MAX_READ_BYTES = 32 << 20
_DEADLINE_S = 1.0
_READ_BYTES = 1 << 20
_MIN_POINTS = 64
# The first, the lowest, the highest and the last value.
_BUCKET_POINTS = 4
_ATTEMPT = re.compile(r"(\d{1,6})\.(\d{1,6})")


class Points(NamedTuple):
    """Columns of one length. Times in seconds since 1970, None where a line has none."""

    steps: list[int]
    times: list[object]
    values: list[float]


class Segment:
    """Values of one attempt of a task, or of one of several runs within it, in the order of the file."""

    __slots__ = ("_kept", "_width", "attempt", "first", "latest", "mark")

    def __init__(self, mark: object, step: int) -> None:
        self.mark = mark
        self.attempt = _attempt_number(mark)
        # The lowest and the highest step.
        self.first = self.latest = step
        self._kept = Points([], [], [])
        # Values of which four are kept.
        self._width = _BUCKET_POINTS

    def add(self, points: Points, most: int) -> None:
        self.first = min(self.first, min(points.steps))
        self.latest = max(self.latest, max(points.steps))
        added = _thinned(points, self._width)
        self._kept.steps.extend(added.steps)
        self._kept.times.extend(added.times)
        self._kept.values.extend(added.values)
        if len(self._kept.steps) > 2 * most:
            self.thin(most)

    def thin(self, most: int) -> Points:
        """At most about that many points."""
        factor = -(-len(self._kept.steps) // max(_BUCKET_POINTS, most))
        if factor > 1:
            self._width *= factor
            self._kept = _thinned(self._kept, _BUCKET_POINTS * factor)
        return self._kept


class ThinnedSeries:
    """Values of one metric, by segments."""

    __slots__ = ("count", "not_finite", "segments")

    def __init__(self) -> None:
        self.count = 0
        self.not_finite = 0
        self.segments: deque[Segment] = deque(maxlen=MAX_SEGMENTS)

    def add(self, points: Points, marks: Sequence[object], most: int) -> None:
        """Values in the order of the file, each with the mark of its attempt."""
        steps, times, values = points
        self.count += len(steps)
        if not _are_finite(values):
            self.not_finite += sum(value - value != 0 for value in values)
        begin = 0
        while begin < len(steps):
            segment = self._segment_of(marks[begin], steps[begin])
            end = _end_of_segment(steps, marks, begin, segment)
            segment.add(Points(steps[begin:end], times[begin:end], values[begin:end]), most)
            begin = end

    def _segment_of(self, mark: object, step: int) -> Segment:
        last = self.segments[-1] if self.segments else None
        if last is not None and last.mark == mark and not (step <= last.first and step < last.latest):
            return last
        segment = Segment(mark, step)
        self.segments.append(segment)
        return segment

    def thinned(self, most: int) -> list[tuple[Segment, Points]]:
        """Each segment with its points, all together at most about that many."""
        part = most // max(1, len(self.segments))
        return [(segment, segment.thin(part)) for segment in self.segments]


class MetricSeries(NamedTuple):
    """Series by name, the points of each, and the offset of what was not read, if ``has_more``."""

    series: dict[str, ThinnedSeries]
    most: int
    end: int
    has_more: bool


def read_series(
    folder: Path,
    start: int,
    points: int,
    names: Collection[str] = (),
    clock: Callable[[], float] = time.monotonic,
    max_bytes: int = MAX_READ_BYTES,
    block_bytes: int = _READ_BYTES,
) -> MetricSeries:
    """Series of these metrics, or of all, from an offset on, with at most about ``points`` values each."""
    series: dict[str, ThinnedSeries] = {}
    wanted = frozenset(names)
    points = max(_MIN_POINTS, min(points, MAX_POINTS))
    most = points
    end, has_more = start, True
    deadline_s = clock() + _DEADLINE_S
    while has_more and end - start < max_bytes and (end == start or clock() < deadline_s):
        lines, end, has_more = read_metric_lines(folder, end, block_bytes)
        for name, (columns, marks) in _columns(lines, wanted).items():
            found = series.get(name)
            if found is None:
                if len(series) >= MAX_NAMES or not is_storable(name):
                    continue
                found = series[name] = ThinnedSeries()
                most = min(points, max(_MIN_POINTS, MAX_ALL_POINTS // len(series)))
            found.add(columns, marks, most)
    return MetricSeries(series, most, end, has_more)


def _columns(lines: bytes, wanted: Collection[str]) -> dict[str, tuple[Points, list[object]]]:
    """Values by metric, with the marks of their attempts."""
    columns: defaultdict[str, tuple[Points, list[object]]] = defaultdict(lambda: (Points([], [], []), []))
    for line in logged_lines(lines):
        for name, value in line.values.items():
            if wanted and name not in wanted:
                continue
            try:
                number = float(value)
            except (ValueError, TypeError, OverflowError):
                continue
            (steps, times, values), marks = columns[name]
            steps.append(line.step)
            times.append(line.time)
            values.append(number)
            marks.append(line.attempt)
    return columns


def _end_of_segment(steps: Sequence[int], marks: Sequence[object], begin: int, segment: Segment) -> int:
    """Where the next segment begins: a program that counts from the beginning again begins one."""
    mark, count = segment.mark, len(steps)
    rest = steps[begin:] if begin else steps
    is_after = rest[0] > segment.first or rest[0] >= segment.latest
    if is_after and marks.count(mark) == count and rest == sorted(rest):
        return count
    first, latest = segment.first, segment.latest
    for at in range(begin, count):
        step = steps[at]
        if at > begin and (marks[at] != mark or (step <= first and step < latest)):
            return at
        first, latest = min(first, step), max(latest, step)
    return count


def _thinned(points: Points, width: int) -> Points:
    """Of so many values the first, lowest, highest and last one, and one that is not finite."""
    if width <= _BUCKET_POINTS:
        return points
    steps, times, values = points
    kept: list[int] = []
    for start in range(0, len(values), width):
        part = values[start : start + width]
        if _are_finite(part):
            low, high = start + part.index(min(part)), start + part.index(max(part))
            kept += sorted({start, low, high, start + len(part) - 1})
        else:
            kept += [start + at for at in _outline(part)]
    return Points([steps[at] for at in kept], [times[at] for at in kept], [values[at] for at in kept])


def _outline(values: Sequence[float]) -> list[int]:
    """Indexes of what is kept, where not all values are finite."""
    finite = [at for at, value in enumerate(values) if value - value == 0]
    odd = [at for at, value in enumerate(values) if value - value != 0]
    extremes = [min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)] if finite else []
    return sorted({0, *odd[:1], *extremes, len(values) - 1})


def _are_finite(values: Sequence[float]) -> bool:
    """Whether they are, or false for some that are very large."""
    total = sum(values)
    return total - total == 0


def _attempt_number(mark: object) -> int:
    """From 1. "1.2" is what follows one attempt of the job and two of the task."""
    found = _ATTEMPT.fullmatch(mark) if isinstance(mark, str) else None
    return 1 + int(found[1]) + int(found[2]) if found else 1
