"""The names of a long folder, remembered from one batch of a list to the next."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right

from paicluster.files.namespace import Inode, names_in

_Key = tuple[int, int, int, int]

# Lists that nobody goes on with are forgotten, and older ones for newer: beside the newest, however long that
# is, only so many names are kept, some 30 MB.
_MAX_AGE_S = 60.0
_MOST = 300_000


class ListingCache:
    """Who asks for the next batch gets it out of the names that the first was taken from.

    Without that each batch would read and sort the whole folder. A list that begins anew always does.
    """

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[float, list[str]]] = {}
        self._lock = threading.Lock()

    def names(self, node: Inode, after: str, limit: int) -> tuple[list[str], int]:
        """The next names of a folder, and how many more there are."""
        # As it was before the names are read: what changes from here on makes another key.
        status = node.status
        key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        names = self._take(key if after else None)
        if names is None:
            names = sorted(names_in(node))
        at = bisect_right(names, after) if after else 0
        shown = names[at : at + limit]
        remaining = len(names) - at - len(shown)
        if remaining:
            self._keep(key, names)
        return shown, remaining

    def _take(self, key: _Key | None) -> list[str] | None:
        with self._lock:
            names = self._kept.pop(key, (0.0, None))[1] if key else None
            now = time.monotonic()
            self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] < _MAX_AGE_S}
            return names

    def _keep(self, key: _Key, names: list[str]) -> None:
        room = _MOST - len(names)
        with self._lock:
            kept = {key: (time.monotonic(), names)}
            for other, (when, theirs) in reversed(self._kept.items()):
                if other != key and len(theirs) <= room:
                    kept[other] = (when, theirs)
                    room -= len(theirs)
            self._kept = dict(reversed(kept.items()))  # the newest stands last
