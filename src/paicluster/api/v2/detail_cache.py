"""Answers that took long to make, kept for as long as the job they tell of does not change.

Whoever watches a job with thousands of tasks asks for the same megabytes again and again.
"""

from __future__ import annotations

from collections import OrderedDict

Key = tuple[str, int | None]

# Less than this is made anew sooner than it is worth keeping.
SMALLEST = 64 << 10
LARGEST = 16 << 20
_MOST_CHANGES = 4096


class ResponseCache:
    """Used on the loop's thread alone, where the store tells of changes."""

    def __init__(self, smallest: int = SMALLEST, largest: int = LARGEST) -> None:
        self._smallest = smallest
        self._largest = largest
        self._kept: OrderedDict[Key, tuple[int, bytes]] = OrderedDict()
        self._of_job: dict[int, set[Key]] = {}
        self._size = 0
        # Which jobs changed lately, and when, counted in changes.
        self._changed: OrderedDict[int, int] = OrderedDict()
        self._count = 0
        self._unknown_before = 0

    def get(self, key: Key) -> bytes | None:
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[1]

    def moment(self) -> int:
        """To be taken before reading, and given to `keep`."""
        return self._count

    def keep(self, key: Key, job_id: int, body: bytes, since: int) -> None:
        """Remember an answer, unless the job has changed since the moment before it was read."""
        if not self._smallest <= len(body) <= self._largest:
            return
        if since < self._unknown_before or self._changed.get(job_id, 0) > since:
            return
        self._drop(key)
        self._kept[key] = (job_id, body)
        self._of_job.setdefault(job_id, set()).add(key)
        self._size += len(body)
        while self._size > self._largest:
            self._drop(next(iter(self._kept)))

    def forget(self, job_id: int) -> None:
        """The job has changed."""
        self._count += 1
        self._changed[job_id] = self._count
        self._changed.move_to_end(job_id)
        if len(self._changed) > _MOST_CHANGES:
            self._unknown_before = self._changed.popitem(last=False)[1]
        for key in tuple(self._of_job.get(job_id, ())):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        found = self._kept.pop(key, None)
        if found is None:
            return
        job_id, body = found
        self._size -= len(body)
        keys = self._of_job[job_id]
        keys.discard(key)
        if not keys:
            del self._of_job[job_id]
