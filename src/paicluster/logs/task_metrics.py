"""Metrics a task wrote, read from a file in its working folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

# Path inside an attempt folder.
_METRICS_PATH = ("work", ".pai", "metrics.jsonl")
_METRICS_FILE = "/".join(_METRICS_PATH)
# One response, in memory; a client asks for what follows with `start`.
MAX_READ_BYTES = 4 << 20


class MetricLines(NamedTuple):
    """Complete lines of a file, and the offset behind them. ``has_more``: the file may be longer."""

    lines: bytes
    end: int
    has_more: bool


def read_metrics(folder: Path, start: int = 0) -> bytes:
    """Complete lines from that offset on; empty if there are none."""
    data = _read(folder, start, MAX_READ_BYTES)
    return data[: data.rfind(b"\n") + 1]


def read_metric_lines(folder: Path, start: int, size: int) -> MetricLines:
    """As `read_metrics`, at most ``size`` bytes. A line that is longer is skipped, all or in parts."""
    data = _read(folder, start, size)
    has_more = len(data) == size
    length = data.rfind(b"\n") + 1
    if has_more and not length:
        return MetricLines(b"", start + size, True)
    return MetricLines(data[:length], start + length, has_more)


def metrics_size(folder: Path) -> int:
    """Size of the file, 0 without one. Nothing is opened: what is there is checked when it is read."""
    try:
        return os.lstat(f"{folder}/{_METRICS_FILE}").st_size
    except OSError:
        return 0


def _read(folder: Path, start: int, size: int) -> bytes:
    """Bytes from an offset on.

    The task controls the folder's content: no link is followed, and only a regular file is read.
    """
    fd = -1
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for name in _METRICS_PATH:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            next_fd = os.open(name, flags if name == _METRICS_PATH[-1] else flags | os.O_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = next_fd
        status = os.fstat(fd)
        # A second hard link would mean that it may be a file of another user.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            return b""
        return os.pread(fd, size, start)
    except OSError:
        return b""
    finally:
        if fd >= 0:
            os.close(fd)
