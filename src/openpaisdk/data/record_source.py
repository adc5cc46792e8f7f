"""Interface of what records are read from: a pack, or the files of a folder."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class RecordRun:
    """Consecutive records that are read together: ``count`` records from number ``first`` on."""

    __slots__ = ("count", "first")

    def __init__(self, first: int, count: int):
        self.first = first
        self.count = count


class RecordSource:
    """Records by number and by key. It can be pickled and used by several threads and forked processes."""

    url: str

    def __len__(self) -> int:
        raise NotImplementedError

    def key(self, number: int) -> str:
        raise NotImplementedError

    def iter_keys(self) -> Iterator[str]:
        return (self.key(number) for number in range(len(self)))

    def read(self, number: int) -> bytes:
        """Content of one record, with one range read."""
        return self.read_run(RecordRun(number, 1))[0]

    def read_run(self, run: RecordRun) -> list[bytes]:
        """Contents of consecutive records, with one range read. A run never crosses shards."""
        raise NotImplementedError

    def read_soon(self, run: RecordRun) -> bool:
        """Let the kernel read a run in the background; False where that takes a thread."""
        return False

    def run_keys(self, run: RecordRun) -> list[str]:
        """Keys of consecutive records of one shard."""
        return [self.key(number) for number in range(run.first, run.first + run.count)]

    def runs(self, max_bytes: int, max_records: int) -> list[RecordRun]:
        """All records, in runs of at most ``max_bytes`` and ``max_records``."""
        raise NotImplementedError

    def run_identity(self, run: RecordRun) -> str:
        """Text that is the same for the same bytes, for caches."""
        raise NotImplementedError

    def close(self) -> None:
        pass

    def __enter__(self) -> RecordSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def runs_of(sizes: Sequence[int], first: int, max_bytes: int, max_records: int) -> list[RecordRun]:
    """Runs of records with these sizes, numbered from ``first`` on."""
    runs = []
    ends = list(accumulate(sizes))
    start = before = 0
    while start < len(ends):
        limit = min(start + max_records, len(ends))
        end = max(start + 1, bisect_right(ends, before + max_bytes, start, limit))
        runs.append(RecordRun(first + start, end - start))
        start, before = end, ends[end - 1]
    return runs
