"""Times at which parts of a log were written, from the index that the task's supervisor keeps beside it.

The file may be damaged, or written by the task: whatever it has, a read is bounded and does not fail.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from paicluster.logs.reader import Stream
from pairuntime.local_files.log_times_format import (
    ENTRY_BYTES,
    MAX_ENTRIES,
    NAME,
    entries_of,
    offset_of,
    precision_of,
)

_ENTRIES_PER_READ = 128
_MAX_PRECISION_MS = 1 << 40
# Until the year 9999: later ones have no name in most programs.
_MAX_TIME_MS = 253_402_300_799_999


class RecordedTimes(NamedTuple):
    """``times``: pairs of an offset and the time of the bytes up to the next pair, in ms since 1970.

    They were written at that time or, at most ``precision_ms``, later.
    """

    precision_ms: int
    times: list[tuple[int, int]]


def read_log_times(folder: Path, stream: Stream, start: int, end: int) -> RecordedTimes | None:
    """The times of the bytes from ``start`` to before ``end``; None of a log without an index."""
    try:
        # A link or pipe could make the server read another file, or wait.
        fd = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        # A second hard link would mean that it may be a file of another user.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            return None
        precision_ms = precision_of(os.pread(fd, ENTRY_BYTES, 0))
        if not precision_ms:
            return None
        count = min(status.st_size // ENTRY_BYTES - 1, MAX_ENTRIES)
        return RecordedTimes(min(precision_ms, _MAX_PRECISION_MS), _times(fd, stream, count, start, end))
    except OSError:
        return None
    finally:
        os.close(fd)


def _times(fd: int, stream: Stream, count: int, start: int, end: int) -> list[tuple[int, int]]:
    # The entry after the last one that is at the start, or before it.
    first, after = 0, count
    while first < after:
        middle = (first + after) // 2
        if offset_of(_entries(fd, middle, 1), stream) <= start:
            first = middle + 1
        else:
            after = middle
    times: list[tuple[int, int]] = []
    for at in range(max(0, first - 1), count, _ENTRIES_PER_READ):
        data = _entries(fd, at, min(_ENTRIES_PER_READ, count - at))
        for time_ms, recorded in entries_of(data, stream):
            offset = max(start, recorded)
            if offset >= end:
                return times
            if not 0 < time_ms <= _MAX_TIME_MS or (times and offset < times[-1][0]):
                continue
            if times and offset == times[-1][0]:
                times.pop()  # nothing was written between them
            times.append((offset, time_ms))
    return times


def _entries(fd: int, first: int, count: int) -> bytes:
    return os.pread(fd, count * ENTRY_BYTES, (1 + first) * ENTRY_BYTES)
