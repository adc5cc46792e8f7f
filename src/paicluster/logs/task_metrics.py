"""The numbers a task keeps of its steps, from a file in its own working folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

# As the engines lay an attempt's folder out.
_WAY = ("work", ".pai", "metrics.jsonl")
LARGEST = 32 << 20


def read_metrics(folder: Path, start: int = 0) -> bytes:
    """Whole lines from that offset on; nothing when there are none.

    The folder is the task's own, so that anything may be there: no link is followed, and only a file is read.
    """
    here = -1
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for name in _WAY:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            inner = os.open(name, flags if name == _WAY[-1] else flags | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = inner
        found = os.fstat(here)
        # A second name would mean that it may be a file of somebody else.
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            return b""
        data = os.pread(here, LARGEST, start)
    except OSError:
        return b""
    finally:
        if here >= 0:
            os.close(here)
    return data[: data.rfind(b"\n") + 1]
