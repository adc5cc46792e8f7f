"""Read event files of a task: `python -m paicluster.logs.event_file_worker FOLDER POINTS CPU_S WALL_S`.

Its input is a JSON list of the names of the metrics that are wanted; an empty one means all. Writes an
`EventMetrics` as JSON. Runs in a process of its own, because the files are the task's: processor time and
memory are limited, and the kernel ends a process that exceeds its limits. So is its whole time: it may wait
for a file system, and the server that started it may be gone.
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import stat
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from paicluster.logs.event_files import Scalar, read_scalars
from paicluster.logs.metric_series import (
    MAX_ALL_POINTS,
    MAX_NAMES,
    MAX_POINTS,
    Points,
    ThinnedSeries,
)
from paicluster.logs.metric_summary import SeriesSummary, is_storable
from paiprotocol.plain_numbers import plain_number

MAX_CPU_S = 10
"""Processor time for the files of one task."""
MAX_WALL_S = 60
"""Time for them: the machine may be overloaded."""
MAX_MEMORY_BYTES = 512 << 20
# Of a task; further files and entries of folders, and what is deeper, are not read.
MAX_FILES = 100
MAX_ENTRIES = 5000
MAX_DEPTH = 6
MAX_FILE_BYTES = 256 << 20
PREFIX = "tensorboard/"
"""Of the names of metrics: it distinguishes them from those that the program logged."""
# Of the names of event files.
_NAME_PART = "tfevents"
# Path inside an attempt folder.
_OUTPUTS = ("work", ".pai", "output")
_BATCH = 4096


class EventSeries(msgspec.Struct):
    """One metric: all that a summary has, and points for plots."""

    name: str
    count: int
    not_finite: int
    last: float | str
    last_step: int
    min: float | str | None
    min_step: int | None
    max: float | str | None
    max_step: int | None
    steps: list[int]
    times: list[float]
    values: list[float | str]


class EventMetrics(msgspec.Struct):
    """``size``: bytes of all files, by which a reader knows that nothing was added."""

    size: int
    series: list[EventSeries]


class EventFile(NamedTuple):
    """Path of its folder below the outputs, its size, and an open descriptor, which the receiver closes."""

    folder: str
    size: int
    fd: int


def event_files(
    folder: Path, max_files: int = MAX_FILES, max_entries: int = MAX_ENTRIES
) -> Iterator[EventFile]:
    """Event files in the outputs of a task, each opened when its turn comes.

    The task controls the folder's content: no link is followed, only regular files are opened, and at most
    ``max_entries`` entries of all folders together are read.
    """
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        for part in _OUTPUTS:
            inner = _open_folder(part, root)
            os.close(root)
            root = inner
        yield from itertools.islice(_walk(root, "", 0, itertools.count(1), max_entries), max_files)
    except OSError:
        pass
    finally:
        os.close(root)


def event_files_size(folder: Path, max_files: int = MAX_FILES, max_entries: int = MAX_ENTRIES) -> int:
    """Bytes of the event files of a task; 0 without any."""
    size = 0
    for file in event_files(folder, max_files, max_entries):
        os.close(file.fd)
        size += file.size
    return size


def _walk(
    folder: int, path: str, depth: int, entries_read: Iterator[int], max_entries: int
) -> Iterator[EventFile]:
    """Event files of a folder by their names, then those of the folders in it."""
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if next(entries_read) > max_entries:
                break
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif _NAME_PART in entry.name:
                files.append(entry.name)
    for name in sorted(files):
        found = _open_file(name, folder)
        if found is not None:
            fd, size = found
            yield EventFile(path, size, fd)
    if depth == MAX_DEPTH:
        return
    for name in sorted(folders):
        try:
            inner = _open_folder(name, folder)
        except OSError:
            continue
        try:
            yield from _walk(inner, f"{path}/{name}" if path else name, depth + 1, entries_read, max_entries)
        finally:
            os.close(inner)


def _open_folder(name: str, parent: int) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _open_file(name: str, parent: int) -> tuple[int, int] | None:
    """Descriptor and size of a regular file of the task."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    except OSError:
        return None
    status = os.fstat(fd)
    # A second hard link would mean that it may be a file of another user.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(fd)
        return None
    return fd, min(status.st_size, MAX_FILE_BYTES)


def read_events(
    folder: Path,
    points: int,
    names: Collection[str] = (),
    max_files: int = MAX_FILES,
    max_names: int = MAX_NAMES,
) -> EventMetrics:
    """The scalars of a task. The name of a metric begins with the folder of its file below the outputs."""
    series: dict[str, tuple[ThinnedSeries, SeriesSummary]] = {}
    size = 0
    # Of one folder, files are the parts of one run, and their names begin with the time.
    for path, length, fd in event_files(folder, max_files):
        size += length
        begin = f"{PREFIX}{path}/" if path else PREFIX
        with os.fdopen(fd, "rb") as file:
            batch: defaultdict[str, list[Scalar]] = defaultdict(list)
            count = 0
            for scalar in read_scalars(file, length):
                name = begin + scalar.tag
                if names and name not in names:
                    continue
                batch[name].append(scalar)
                count += 1
                if count >= _BATCH:
                    _add(series, batch, points, max_names)
                    batch, count = defaultdict(list), 0
            _add(series, batch, points, max_names)
    most = min(points, MAX_POINTS, max(64, MAX_ALL_POINTS // max(1, len(series))))
    return EventMetrics(size, [_plain(name, *both, most) for name, both in series.items()])


def _add(
    series: dict[str, tuple[ThinnedSeries, SeriesSummary]],
    batch: dict[str, list[Scalar]],
    points: int,
    max_names: int,
) -> None:
    for name, scalars in batch.items():
        if name not in series:
            if len(series) >= max_names or not is_storable(name):
                continue
            series[name] = (ThinnedSeries(), SeriesSummary())
        thinned, summary = series[name]
        columns = Points([s.step for s in scalars], [s.time for s in scalars], [s.value for s in scalars])
        thinned.add(columns, [None] * len(scalars), min(points, MAX_POINTS))
        for scalar in scalars:
            summary.add(scalar.step, scalar.value)


def _plain(name: str, thinned: ThinnedSeries, summary: SeriesSummary, most: int) -> EventSeries:
    kept = [points for _, points in thinned.thinned(most)]
    times = [at for points in kept for at in points.times]
    bounds = [None if bound is None else plain_number(bound) for bound in (summary.min, summary.max)]
    return EventSeries(
        name,
        thinned.count,
        thinned.not_finite,
        plain_number(summary.last),
        summary.last_step,
        bounds[0],
        summary.min_step,
        bounds[1],
        summary.max_step,
        [step for points in kept for step in points.steps],
        [at if isinstance(at, float) and at - at == 0 else 0.0 for at in times],
        [plain_number(value) for points in kept for value in points.values],
    )


def main(arguments: list[str]) -> None:
    folder, points, cpu_s, wall_s = arguments
    signal.alarm(int(wall_s))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    names = msgspec.json.decode(sys.stdin.buffer.read(), type=list[str])
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s)))
    sys.stdout.buffer.write(msgspec.json.encode(read_events(Path(folder), int(points), names)))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (MemoryError, BrokenPipeError, KeyboardInterrupt):
        os._exit(1)
