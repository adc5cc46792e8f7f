"""Cache of the metrics and parameters of finished jobs in lists: clients poll the same pages."""

from __future__ import annotations

from functools import lru_cache
from threading import Lock

Names = tuple[tuple[str, ...], ...]

MAX_BYTES = 16 << 20


@lru_cache(maxsize=16)
def _length(names: Names) -> int:
    return sum(len(name) for part in names for name in part)


class ColumnCache:
    """Cache by the summary of a job and the names of the columns; emptied when it has ``max_bytes``.

    Nothing has to be dropped from it: a job that has changed, or another one, has another summary.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._fields: dict[tuple[bytes, Names], bytes] = {}
        self._size = 0
        # Pages are read on several threads.
        self._lock = Lock()

    def get(self, summary: bytes, names: Names) -> bytes | None:
        return self._fields.get((summary, names))

    def put(self, summary: bytes, names: Names, fields: bytes) -> None:
        # A request may name long columns for a single job.
        size = len(summary) + len(fields) + _length(names)
        with self._lock:
            self._size += size
            if self._size > self._max_bytes:
                self._fields = {}
                self._size = size
            self._fields[summary, names] = fields
