"""Order of the records of an epoch: which ones a process reads, and in which order.

All records are divided into runs. A shuffled epoch permutes the runs, deals them out to the processes, and
mixes the records of a window of runs. Every process computes the same permutation from the seed and the
epoch, so none has to talk to another, and any position of the epoch can be found again without reading.
"""

from __future__ import annotations

from random import Random
from struct import unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.data.record_source import RecordRun

WINDOW_RUNS = 16
"""Runs whose records are mixed with each other."""
_SORT_KEY_MASK = b"\xff\xff\xff\x3f"
"""Numbers of 30 bits: Python compares them in half the time of larger ones."""


class Share:
    """Part ``part`` of ``parts``: the records of one process."""

    __slots__ = ("part", "parts")

    def __init__(self, part: int, parts: int):
        self.part = part
        self.parts = parts


class Window:
    """The runs from ``start`` to ``end``, and the order of their records, by their numbers in the window."""

    __slots__ = ("end", "order", "start")

    def __init__(self, start: int, end: int, order: list[int]):
        self.start = start
        self.end = end
        self.order = order


class EpochOrder:
    """Order of one process's records in one epoch."""

    def __init__(self, runs: list[RecordRun], share: Share, *, shuffle: bool, seed: int, epoch: int):
        self._shuffle = shuffle
        self._name = f"{seed}/{epoch}"
        order = list(range(len(runs)))
        if shuffle:
            Random(self._name).shuffle(order)
        self._share = share
        self._runs = runs
        self._order = order
        self.runs = [runs[i] for i in order[share.part :: share.parts]]

    def __len__(self) -> int:
        return sum(run.count for run in self.runs)

    def shortest(self) -> int:
        """The number of records of the process that has the fewest."""
        parts = self._share.parts
        return min(sum(self._runs[i].count for i in self._order[part::parts]) for part in range(parts))

    def windows(self, skip: int) -> Iterator[Window]:
        """Windows from record ``skip`` on."""
        width = WINDOW_RUNS if self._shuffle else 1
        for start in range(0, len(self.runs), width):
            end = min(start + width, len(self.runs))
            count = sum(run.count for run in self.runs[start:end])
            if skip >= count:
                skip -= count
                continue
            order = list(range(count))
            if self._shuffle:
                drawn = Random(f"{self._name}/{self._share.part}/{start}").getrandbits(32 * count)
                drawn &= int.from_bytes(_SORT_KEY_MASK * count, "little")
                # Faster than Random.shuffle.
                order.sort(key=unpack(f"<{count}I", drawn.to_bytes(4 * count, "little")).__getitem__)
            yield Window(start, end, order[skip:])
            skip = 0
