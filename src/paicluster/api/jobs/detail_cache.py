"""Cache of large job details, valid until the job changes.

Clients that watch a job with thousands of tasks poll the same megabytes.
"""

from __future__ import annotations

from collections import OrderedDict

Key = tuple[str, int | None]

# Smaller responses are rendered faster than caching them is worth.
MIN_BYTES = 64 << 10
MAX_BYTES = 16 << 20
_MAX_CHANGES = 4096


class ResponseCache:
    """LRU cache of response bodies. Used on the event loop's thread only, where changes arrive.

    Responses below ``min_bytes`` are not cached; ``max_bytes`` bounds the cache.
    """

    def __init__(self, min_bytes: int = MIN_BYTES, max_bytes: int = MAX_BYTES) -> None:
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, tuple[int, bytes]] = OrderedDict()
        self._keys_of_job: dict[int, set[Key]] = {}
        self._size = 0
        # Recently changed jobs, each with the number of its last change.
        self._last_change: OrderedDict[int, int] = OrderedDict()
        self._change_count = 0
        self._oldest_known = 0

    def get(self, key: Key) -> bytes | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def version(self) -> int:
        """Version of the data; take it before reading, and pass it to `put`."""
        return self._change_count

    def put(self, key: Key, job_id: int, body: bytes, version: int) -> None:
        """Cache a response, unless the job has changed since ``version``."""
        if not self._min_bytes <= len(body) <= self._max_bytes:
            return
        if version < self._oldest_known or self._last_change.get(job_id, 0) > version:
            return
        self._drop(key)
        self._entries[key] = (job_id, body)
        self._keys_of_job.setdefault(job_id, set()).add(key)
        self._size += len(body)
        while self._size > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def invalidate(self, job_id: int) -> None:
        """Drop the entries of a job that has changed."""
        self._change_count += 1
        self._last_change[job_id] = self._change_count
        self._last_change.move_to_end(job_id)
        if len(self._last_change) > _MAX_CHANGES:
            self._oldest_known = self._last_change.popitem(last=False)[1]
        for key in tuple(self._keys_of_job.get(job_id, ())):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        job_id, body = entry
        self._size -= len(body)
        keys = self._keys_of_job[job_id]
        keys.discard(key)
        if not keys:
            del self._keys_of_job[job_id]
