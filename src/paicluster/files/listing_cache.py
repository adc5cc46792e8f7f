"""Cache of the sorted names of long folders between two pages of a listing."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right

from paicluster.files.namespace import Inode, names_in

_Key = tuple[int, int, int, int]

# Abandoned listings expire, and older ones are evicted first. The newest is kept however long it is; the
# others together may hold this many names, some 30 MB.
_MAX_AGE_S = 60.0
_MAX_NAMES = 300_000


class ListingCache:
    """Serves the next page of a listing from the names that were read for the first page.

    Without it each page would read and sort the whole folder. The first page of a listing always does.
    """

    def __init__(self, *, max_names: int = _MAX_NAMES, max_age_s: float = _MAX_AGE_S) -> None:
        self._max_names = max_names
        self._max_age_s = max_age_s
        self._listings: dict[_Key, tuple[float, list[str]]] = {}
        self._lock = threading.Lock()

    def names(self, inode: Inode, after: str, limit: int) -> tuple[list[str], int]:
        """The next names of a folder, and how many more there are."""
        # The status from before the names are read: any later change gives another key.
        status = inode.status
        key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        names = self._pop(key if after else None)
        if names is None:
            names = sorted(names_in(inode))
        at = bisect_right(names, after) if after else 0
        shown = names[at : at + limit]
        remaining = len(names) - at - len(shown)
        if remaining:
            self._put(key, names)
        return shown, remaining

    def _pop(self, key: _Key | None) -> list[str] | None:
        with self._lock:
            names = self._listings.pop(key, (0.0, None))[1] if key else None
            now = time.monotonic()
            self._listings = {
                key: kept for key, kept in self._listings.items() if now - kept[0] < self._max_age_s
            }
            return names

    def _put(self, key: _Key, names: list[str]) -> None:
        remaining = self._max_names - len(names)
        with self._lock:
            kept = {key: (time.monotonic(), names)}
            for other, (cached_at, other_names) in reversed(self._listings.items()):
                if other != key and len(other_names) <= remaining:
                    kept[other] = (cached_at, other_names)
                    remaining -= len(other_names)
            self._listings = dict(reversed(kept.items()))  # newest last
