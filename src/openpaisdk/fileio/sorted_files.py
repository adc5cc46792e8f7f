"""Files of one folder in the order of their names. A folder may have more files than fit into memory."""

from __future__ import annotations

import pickle
from heapq import merge
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    FileStat = tuple[int, int, int]
    """Size, mtime in ns, mode."""
    Item = tuple[str, FileStat]

_CHUNK_FILES = 256
"""Files that are read at once from each sorted run: with ten million files there are hundreds of runs."""


class SortedFiles:
    """Collects the files of a folder. Beyond ``max_files`` they are sorted in a temporary file.

    Without ``max_files`` all of them stay in memory.
    """

    def __init__(self, max_files: int = 0):
        self._max_files = max_files
        self._files: dict[str, FileStat] = {}
        self._file: IO[bytes] | None = None
        self._runs: list[list[tuple[int, int]]] = []
        """For each sorted run, where its chunks are in the temporary file."""

    def add(self, name: str, file_stat: FileStat) -> None:
        self._files[name] = file_stat
        if len(self._files) == self._max_files:
            self._write_run()

    def blocks(self) -> Iterator[tuple[dict[str, FileStat], bool]]:
        """One dictionary of all files, or several of at most ``max_files``; and whether it is the last one.

        The names of each of several come after those of the one before, and are sorted.
        """
        if not self._runs:
            yield self._files, True
            return
        if self._files:
            self._write_run()
        files = self._merged()
        block = dict(islice(files, self._max_files))
        while following := dict(islice(files, self._max_files)):
            yield block, False
            block = following
        yield block, True

    def _merged(self) -> Iterator[Item]:
        last = None
        for item in merge(*map(self._read_run, self._runs)):
            if item[0] != last:  # a folder that changes may list a name twice
                yield item
            last = item[0]

    def _write_run(self) -> None:
        if self._file is None:
            import tempfile

            self._file = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - it lives as long as these files
        items = sorted(self._files.items())
        chunks = []
        for start in range(0, len(items), _CHUNK_FILES):
            data = pickle.dumps(items[start : start + _CHUNK_FILES])
            chunks.append((self._file.tell(), len(data)))
            self._file.write(data)
        self._runs.append(chunks)
        self._files = {}

    def _read_run(self, chunks: list[tuple[int, int]]) -> Iterator[Item]:
        assert self._file is not None
        for offset, length in chunks:
            self._file.seek(offset)
            items: list[Item] = pickle.loads(self._file.read(length))
            yield from items
