"""Set of the keys of very many records, by their hashes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from heapq import merge

_MAX_RECENT = 1 << 15


class KeySet:
    """Keys that were added, at 8 bytes each.

    Two different ones of a million keys have the same hash once in 30 million runs.
    Recent hashes are in a set; older ones in sorted arrays, each at least twice as long as the next.
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._arrays: list[array[int]] = []

    def __contains__(self, key: str) -> bool:
        return self._has(hash(key))

    def add(self, key: str) -> bool:
        """Add a key; False if it is there already."""
        number = hash(key)
        if self._has(number):
            return False
        self._recent.add(number)
        if len(self._recent) == _MAX_RECENT:
            self._sort_recent()
        return True

    def _has(self, number: int) -> bool:
        if number in self._recent:
            return True
        for numbers in self._arrays:
            at = bisect_left(numbers, number)
            if at < len(numbers) and numbers[at] == number:
                return True
        return False

    def _sort_recent(self) -> None:
        numbers = array("q", sorted(self._recent))
        self._recent.clear()
        while self._arrays and len(self._arrays[-1]) < 2 * len(numbers):
            numbers = array("q", merge(self._arrays.pop(), numbers))
        self._arrays.append(numbers)
