"""Files of one folder in the order of their names. A folder may have more files than fit into memory."""

from __future__ import annotations

import errno
import pickle
from heapq import merge
from itertools import islice

from paiprotocol.errors import STORAGE_FULL, PaiError

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
        items = sorted(self._files.items())
        chunks = []
        try:
            if self._file is None:
                import tempfile

                self._file = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - it lives as long as these files
            for start in range(0, len(items), _CHUNK_FILES):
                data = pickle.dumps(items[start : start + _CHUNK_FILES])
                chunks.append((self._file.tell(), len(data)))
                self._file.write(data)
            self._file.flush()
        except OSError as e:
            raise _temporary_file_error(e) from None
        self._runs.append(chunks)
        self._files = {}

    def _read_run(self, chunks: list[tuple[int, int]]) -> Iterator[Item]:
        assert self._file is not None
        for offset, length in chunks:
            try:
                self._file.seek(offset)
                data = self._file.read(length)
            except OSError as e:
                raise _temporary_file_error(e) from None
            items: list[Item] = pickle.loads(data)
            yield from items


def _temporary_file_error(e: OSError) -> PaiError:
    """An error that names the temporary folder: callers report an OSError as one of the listed folder."""
    import tempfile

    folder = f"the temporary folder {tempfile.tempdir}" if tempfile.tempdir else "a temporary folder"
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return PaiError(
            f"The disk is full: {folder} (TMPDIR) has no space for a long list of files.",
            code=STORAGE_FULL,
            status=507,
            hint="Free some space there, or set TMPDIR to a folder on another disk.",
        )
    return PaiError(
        f"A long list of files cannot be kept in {folder} (TMPDIR): {e.strerror or e}.",
        hint="Set TMPDIR to a folder in which you can write.",
    )
