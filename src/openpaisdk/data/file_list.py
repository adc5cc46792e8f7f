"""Files of a folder, in order, listed while the first of them are packed."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from struct import Struct

from openpaisdk.storage.transfer.plan import PARTIAL_SUFFIXES
from openpaisdk.storage.transfer.spool import MAX_ITEMS_IN_MEMORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.file_info import FileStat

    Item = tuple[str, FileStat]

_BLOCK_FILES = 4096
_MAX_FOLDER_FILES = 1 << 14
"""Of a folder with more files, so many are in memory at a time."""
_CLOSE_TIMEOUT_S = 1.0
_LENGTH = Struct("<Q")


class FileList:
    """Paths below a folder, with size, time and mode: ``list_first``, ``list_rest``, then iterate once."""

    def __init__(
        self,
        backend: Backend,
        path: str,
        *,
        max_in_memory: int = MAX_ITEMS_IN_MEMORY,
        max_folder_files: int = _MAX_FOLDER_FILES,
    ):
        self.count = 0
        self.size = 0
        self.skipped: list[str] = []
        """Links and special files."""
        self.is_complete = False
        self._folders = backend.walk(path, max_folder_files)
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._waiting: deque[list[Item]] = deque()
        self._waiting_files = 0
        self._max_in_memory = max_in_memory
        # Files that are listed and not yet taken, beyond those in memory: written at its end, read from its
        # beginning, and emptied when all of it was read.
        self._spool: IO[bytes] | None = None
        self._spool_start = self._spool_end = 0

    def list_first(self, count: int) -> None:
        """List at least that many files, if there are as many."""
        while self.count < count and self._list_folder():
            pass

    def list_rest(self) -> None:
        """List the others in a thread."""
        if not self.is_complete:
            self._thread = threading.Thread(target=self._list_folders, name="pack-listing", daemon=True)
            self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        """Each file once; waits for those that are not listed yet. An error of the listing is raised here."""
        while True:
            with self._changed:
                self._changed.wait_for(self._is_ready)
                if self._error is not None:
                    raise self._error
                files = self._take() if self._has_files() and not self._is_closed else []
            if not files:
                return
            yield from files

    def wait_until_listed(self) -> None:
        """Wait for the last file, or for ``close``. An error of the listing is raised here, too."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_complete or self._is_closed or self._error is not None)
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        """End the thread, and the iteration. A storage that does not respond is not waited for."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _is_ready(self) -> bool:
        return self._has_files() or self.is_complete or self._is_closed or self._error is not None

    def _list_folders(self) -> None:
        try:
            while self._list_folder():
                pass
        except BaseException as e:
            with self._changed:
                self._error = e
                self._changed.notify_all()

    def _list_folder(self) -> bool:
        """List one more folder, or a part of a large one; False if there is none."""
        folder = next(self._folders, None)
        if folder is not None:
            prefix = folder.path + "/" if folder.path else ""
            self.skipped += [prefix + name for name in folder.others]
            names = sorted(name for name in folder.files if not name.endswith(PARTIAL_SUFFIXES))
            for start in range(0, len(names), _BLOCK_FILES):
                some = names[start : start + _BLOCK_FILES]
                self._put([(prefix + name, folder.files[name]) for name in some])
        with self._changed:
            self.is_complete = folder is None
            self._changed.notify_all()
            return folder is not None and not self._is_closed

    def _has_files(self) -> bool:
        return bool(self._waiting) or self._spool_start < self._spool_end

    def _put(self, files: list[Item]) -> None:
        with self._changed:
            self.count += len(files)
            self.size += sum([file_stat[0] for _, file_stat in files])
            if self._waiting_files < self._max_in_memory and self._spool_start == self._spool_end:
                self._waiting.append(files)
                self._waiting_files += len(files)
            else:
                self._write_spool(pickle.dumps(files))
            self._changed.notify_all()

    def _write_spool(self, data: bytes) -> None:
        if self._spool is None:
            import tempfile

            self._spool = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - it lives as long as this listing
        self._spool.seek(self._spool_end)
        self._spool.write(_LENGTH.pack(len(data)) + data)
        self._spool_end += _LENGTH.size + len(data)

    def _take(self) -> list[Item]:
        if self._waiting:
            files = self._waiting.popleft()
            self._waiting_files -= len(files)
            return files
        assert self._spool is not None
        self._spool.seek(self._spool_start)
        (length,) = _LENGTH.unpack(self._spool.read(_LENGTH.size))
        spooled: list[Item] = pickle.loads(self._spool.read(length))
        self._spool_start += _LENGTH.size + length
        if self._spool_start == self._spool_end:
            self._spool.truncate(0)
            self._spool_start = self._spool_end = 0
        return spooled
