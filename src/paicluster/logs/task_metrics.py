"""Metrics a task wrote, read from a file in its working folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

# Path inside an attempt folder.
_METRICS_PATH = ("work", ".pai", "metrics.jsonl")
# One response, in memory; a client asks for what follows with `start`.
MAX_READ_BYTES = 4 << 20


def read_metrics(folder: Path, start: int = 0) -> bytes:
    """Complete lines from that offset on; empty if there are none.

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
        data = os.pread(fd, MAX_READ_BYTES, start)
    except OSError:
        return b""
    finally:
        if fd >= 0:
            os.close(fd)
    return data[: data.rfind(b"\n") + 1]
