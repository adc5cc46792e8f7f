"""Records of interrupted copies and uploads: files in folders of ``~/.openpai`` that expire."""

from __future__ import annotations

import os
import time

RECORD_MAX_AGE_S = 7 * 24 * 3600
"""Records expire after this time, like unfinished uploads on a cluster."""
SUFFIX = ".json"


def is_expired(file_stat: os.stat_result) -> bool:
    return time.time() - file_stat.st_mtime > RECORD_MAX_AGE_S


def record_paths(folder: str) -> list[str]:
    """Paths of all records of a folder; none if it cannot be read."""
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(SUFFIX)]
    except OSError:
        return []


def remove_expired(folder: str) -> None:
    for path in record_paths(folder):
        try:
            if is_expired(os.stat(path)):
                os.unlink(path)
        except OSError:
            pass


def remove_record(path: str) -> None:
    """Remove a record. If that fails, it expires."""
    try:
        os.unlink(path)
    except OSError:
        pass
