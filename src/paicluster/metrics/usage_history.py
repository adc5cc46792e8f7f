"""History of usage: series of points that are thinned with age, in one SQLite file of bounded size.

A series has one ring of points for each resolution. A new point goes into the finest ring; whenever an
interval of the next ring is complete, its points become one point there. Every ring keeps its last points,
so a series never takes more than `MAX_SERIES_BYTES`, and the series of a short task stays as fine as it was.

Rings that grow are in memory and are written once a minute; after a crash that minute is missing.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from paicluster.metrics.usage import Usage

log = logging.getLogger("paicluster.usage")

# Seconds between the points of each ring; the first one has all points.
RESOLUTIONS_S = (0, 60, 600, 7200)
RING_POINTS = 240
_POINT = struct.Struct("<q6f")
MAX_SERIES_BYTES = len(RESOLUTIONS_S) * RING_POINTS * _POINT.size
# Series in memory: those of running tasks, their jobs, the nodes and the virtual clusters.
MAX_OPEN_SERIES = 2000
# A series without a new point for so long is written for the last time and dropped from memory.
_CLOSE_AFTER_MS = 120_000
_EVICTED_AT_A_TIME = 20
_SCHEMA = """
CREATE TABLE IF NOT EXISTS ring (
    kind TEXT NOT NULL, job INTEGER NOT NULL, name TEXT NOT NULL, level INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL, points BLOB NOT NULL, PRIMARY KEY (kind, job, name, level)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ring_by_age ON ring (level, updated_ms);
CREATE INDEX IF NOT EXISTS ring_by_job ON ring (job);
"""


class SeriesKey(NamedTuple):
    """Name of a series. ``job`` is a job's id, or 0 for what belongs to no job."""

    kind: str
    name: str
    job: int = 0


def job_key(job_id: int) -> SeriesKey:
    return SeriesKey("job", "", job_id)


def task_key(job_id: int, role: str, index: int) -> SeriesKey:
    return SeriesKey("task", f"{role}/{index}", job_id)


def node_key(name: str) -> SeriesKey:
    return SeriesKey("node", name)


def virtual_cluster_key(name: str) -> SeriesKey:
    return SeriesKey("virtual-cluster", name)


SERVER_KEY = SeriesKey("server", "")


class Point(NamedTuple):
    """Usage in the interval that ended at this time."""

    time_ms: int
    usage: Usage


@dataclass(slots=True)
class UsageRings:
    """The rings of one series, the finest first, each as packed points in the order of time."""

    rings: list[bytearray] = field(default_factory=lambda: [bytearray() for _ in RESOLUTIONS_S])
    updated_ms: int = 0
    changed: set[int] = field(default_factory=set)

    def append(self, point: Point) -> None:
        for level in range(1, len(self.rings)):
            self._fill(level, point.time_ms)
        self._push(0, point)
        self.updated_ms = point.time_ms

    def complete(self) -> None:
        """Fill all rings to the end: there will be no more points for now."""
        for level in range(1, len(self.rings)):
            self._fill(level, None)

    def points(self) -> list[Point]:
        """All points in the order of time, each interval as fine as it is known."""
        points: list[Point] = []
        for ring in self.rings:
            first = points[0].time_ms if points else math.inf
            points[:0] = [point for point in _unpack(ring) if point.time_ms < first]
        return points

    def _fill(self, level: int, now_ms: int | None) -> None:
        """Add the intervals of this ring that are complete now, from the points of the finer one."""
        width_ms = RESOLUTIONS_S[level] * 1000
        ring, finer = self.rings[level], self.rings[level - 1]
        last_ms, newest_ms = _last_time(ring), _last_time(finer)
        # Almost always: the newest point is in an interval that continues.
        if newest_ms <= last_ms or (now_ms is not None and newest_ms // width_ms >= now_ms // width_ms):
            return
        intervals: dict[int, list[Point]] = {}
        for point in _unpack(_newer(finer, last_ms)):
            if now_ms is None or point.time_ms // width_ms < now_ms // width_ms:
                intervals.setdefault(point.time_ms // width_ms, []).append(point)
        for points in intervals.values():
            self._push(level, Point(points[-1].time_ms, _summarize(point.usage for point in points)))

    def _push(self, level: int, point: Point) -> None:
        ring = self.rings[level]
        # The clock was set back: what it will pass again is dropped.
        while ring and _last_time(ring) >= point.time_ms:
            del ring[-_POINT.size :]
        ring += _POINT.pack(point.time_ms, *point.usage)
        del ring[: -RING_POINTS * _POINT.size]
        self.changed.add(level)


def _last_time(ring: bytearray) -> int:
    return int(_POINT.unpack_from(ring, len(ring) - _POINT.size)[0]) if ring else -1


def _newer(ring: bytearray, than_ms: int) -> bytearray:
    """The points after a time, which are few: found from the end."""
    start = len(ring)
    while start and _POINT.unpack_from(ring, start - _POINT.size)[0] > than_ms:
        start -= _POINT.size
    return ring[start:]


def _unpack(ring: bytearray) -> list[Point]:
    return [Point(time_ms, Usage(*values)) for time_ms, *values in _POINT.iter_unpack(ring)]


def _summarize(usages: Iterable[Usage]) -> Usage:
    """The mean of what flows, the maximum of what is held: a peak of memory is what ends a task."""
    columns = [[value for value in column if not math.isnan(value)] for column in zip(*usages, strict=True)]
    cpu, memory, read, write, gpu, gpu_memory = columns

    def mean(values: Sequence[float]) -> float:
        return math.fsum(values) / len(values) if values else math.nan

    return Usage(
        mean(cpu),
        max(memory, default=math.nan),
        mean(read),
        mean(write),
        mean(gpu),
        max(gpu_memory, default=math.nan),
    )


class UsageHistory:
    """All series of a cluster. May be used by several threads.

    Without a file nothing survives the process. A damaged file is replaced; one that cannot be opened or
    written leaves the newest points in memory: a plot is never worth a job.
    """

    def __init__(
        self, file: Path | None = None, max_bytes: int = 256 << 20, *, max_open_series: int = MAX_OPEN_SERIES
    ) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._max_open_series = max_open_series
        self._lock = threading.Lock()
        self._open: dict[SeriesKey, UsageRings] = {}
        self._connection: sqlite3.Connection | None = None
        self._is_failing = False

    def open(self) -> None:
        """Open the file; before that, and without one, series are in memory only."""
        if self._file is None:
            return
        try:
            self._connection = _connect(self._file)
        except (sqlite3.OperationalError, OSError) as error:  # locked, full, not permitted: it may pass
            log.warning("The history of usage is not stored: %s", error)
        except sqlite3.DatabaseError as error:
            log.warning("The history of usage in %s is damaged and is replaced: %s", self._file, error)
            try:
                for path in (self._file, *(Path(f"{self._file}{end}") for end in ("-wal", "-shm"))):
                    path.unlink(missing_ok=True)
                self._connection = _connect(self._file)
            except (sqlite3.DatabaseError, OSError) as error_again:
                log.warning("The history of usage is not stored: %s", error_again)

    def close(self) -> None:
        self.flush()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def append(self, time_ms: int, usages: Mapping[SeriesKey, Usage]) -> None:
        """Add a point to each of these series. New ones beyond the limit are ignored."""
        with self._lock:
            for key, usage in usages.items():
                series = self._open.get(key)
                if series is None:
                    if len(self._open) >= self._max_open_series:
                        continue
                    series = self._open[key] = self._load(key)
                series.append(Point(time_ms, usage))

    def points(self, key: SeriesKey) -> list[Point]:
        """Points of a series in the order of time; empty if there is none."""
        with self._lock:
            return (self._open.get(key) or self._load(key)).points()

    def flush(self, now_ms: int | None = None) -> None:
        """Write what has changed; at ``now_ms``, drop the series that have ended from memory."""
        with self._lock:
            if now_ms is not None:
                ended = [
                    key for key, rings in self._open.items() if rings.updated_ms < now_ms - _CLOSE_AFTER_MS
                ]
                for key in ended:
                    self._open[key].complete()
            self._write()
            if now_ms is not None:
                for key in ended:
                    del self._open[key]

    def remove_jobs(self, job_ids: Iterable[int]) -> None:
        removed = set(job_ids) - {0}
        with self._lock:
            for key in [key for key in self._open if key.job in removed]:
                del self._open[key]
            self._attempt("DELETE FROM ring WHERE job = ?", [(job_id,) for job_id in removed])

    # -- file, called with the lock held -------------------------------------------------------

    def _load(self, key: SeriesKey) -> UsageRings:
        series = UsageRings()
        if self._connection is None:
            return series
        query = "SELECT level, updated_ms, points FROM ring WHERE kind = ? AND job = ? AND name = ?"
        try:
            rows = self._connection.execute(query, (key.kind, key.job, key.name)).fetchall()
        except sqlite3.DatabaseError as error:
            self._report(error)
            rows = []
        for level, updated_ms, points in rows:
            if 0 <= level < len(series.rings) and len(points) % _POINT.size == 0:
                series.rings[level] = bytearray(points)
                series.updated_ms = max(series.updated_ms, updated_ms)
        return series

    def _write(self) -> None:
        rows = [
            (key.kind, key.job, key.name, level, series.updated_ms, bytes(series.rings[level]))
            for key, series in self._open.items()
            for level in series.changed
        ]
        written = self._attempt("INSERT OR REPLACE INTO ring VALUES (?, ?, ?, ?, ?, ?)", rows)
        if written:
            for series in self._open.values():
                series.changed.clear()
            self._evict()

    def _evict(self) -> None:
        """Delete rings until the file is small enough: of those that ended first, the finest first.

        A series that grows writes its rings again, so those of running tasks come back.
        """
        oldest = (
            "DELETE FROM ring WHERE (kind, job, name, level) IN "
            "(SELECT kind, job, name, level FROM ring ORDER BY level, updated_ms LIMIT ?)"
        )
        while self._connection is not None and self._used_bytes(self._connection) > self._max_bytes:
            if not self._attempt(oldest, [(_EVICTED_AT_A_TIME,)]):
                return

    @staticmethod
    def _used_bytes(connection: sqlite3.Connection) -> int:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def _attempt(self, statement: str, rows: Sequence[tuple[object, ...]]) -> bool:
        if self._connection is None:
            return False
        try:
            with self._connection:
                if rows:
                    self._connection.executemany(statement, rows)
        except sqlite3.DatabaseError as error:
            self._report(error)
            return False
        self._is_failing = False
        return True

    def _report(self, error: Exception) -> None:
        """Log a failure to write once, until writing works again."""
        if not self._is_failing:
            log.warning("The history of usage cannot be stored, and is kept in memory: %s", error)
        self._is_failing = True


def _connect(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=5.0, check_same_thread=False)
    try:
        # The file is reused where rings were deleted and never shrinks, so it stays near its limit.
        connection.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {_SCHEMA}")
        connection.execute("SELECT count(*) FROM (SELECT 1 FROM ring LIMIT 1)").fetchone()
    except BaseException:
        connection.close()
        raise
    file.chmod(0o600)
    return connection
