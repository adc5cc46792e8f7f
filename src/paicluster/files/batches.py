"""The names of a long folder, remembered from one batch of a list to the next."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right

from paicluster.files.tree import Node, names_in

_Key = tuple[int, int, int, int]

_LISTS = 4
_SECONDS = 60.0
# Longer ones are read again for each batch: they would take too much memory for as long as they are kept.
_MOST = 500_000


class Batches:
    """Who asks for the next batch gets it out of the names that the first was taken from.

    Without that each batch would read and sort the whole folder. A list that begins anew always does.
    """

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[float, list[str]]] = {}
        self._lock = threading.Lock()

    def names(self, node: Node, after: str, limit: int) -> tuple[list[str], int]:
        """The next names of a folder, and how many more there are."""
        # As it was before the names are read: what changes from here on makes another key.
        status = node.status
        key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        names = self._take(key) if after else None
        if names is None:
            names = sorted(names_in(node))
        at = bisect_right(names, after) if after else 0
        shown = names[at : at + limit]
        remaining = len(names) - at - len(shown)
        if remaining and len(names) <= _MOST:
            self._keep(key, names)
        return shown, remaining

    def _take(self, key: _Key) -> list[str] | None:
        with self._lock:
            return self._kept.pop(key, (0.0, None))[1]

    def _keep(self, key: _Key, names: list[str]) -> None:
        now = time.monotonic()
        with self._lock:
            lately = [kept for kept in self._kept.items() if now - kept[1][0] < _SECONDS and kept[0] != key]
            self._kept = {**dict(lately[1 - _LISTS :]), key: (now, names)}
