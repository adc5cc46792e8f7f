"""Interface of what records are read from: a pack, or the files of a folder."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


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


def runs_of(sizes: list[int], first: int, max_bytes: int, max_records: int) -> list[RecordRun]:
    """Runs of records with these sizes, numbered from ``first`` on."""
    runs = []
    start = size = 0
    for i, record_bytes in enumerate(sizes):
        if i > start and (size + record_bytes > max_bytes or i - start >= max_records):
            runs.append(RecordRun(first + start, i - start))
            start, size = i, 0
        size += record_bytes
    if start < len(sizes):
        runs.append(RecordRun(first + start, len(sizes) - start))
    return runs
