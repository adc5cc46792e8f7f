"""Content that programs write, in a temporary file of this machine until it is complete."""

import os
import tempfile
import threading
import time

from pairuntime.fuse.file_system import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from pairuntime.fuse.file_system import FileSystem, OpenFile

_CHUNK_BYTES = 1 << 20


class StagedFile:
    """One file's new content, shared by all programs that have it open for writing.

    ``existing`` is its content on the storage. It is fetched when it is needed: a program that opens a file
    to replace it never reads it. ``lock`` is held during a whole upload; ``size`` and ``entry`` need none,
    so that a listing of the folder does not wait for the upload of one of its files.
    """

    def __init__(self, mode: "int", existing: "OpenFile | None" = None) -> "None":
        self.lock = threading.RLock()
        self.handles = 0
        self.mode = mode
        self.is_dirty = existing is None
        self.was_written = False
        self.mtime_ns = int(time.time() * 10**9)
        # Set by a program, which must not be undone by the time of its own last write.
        self._has_own_time = False
        self._existing = existing
        self.size = 0
        if existing is not None:
            self.size = existing.size
            self.mtime_ns = existing.mtime_ns
        self._file = tempfile.TemporaryFile(prefix="pai-mount-")

    def entry(self, name: "str") -> "Entry":
        return Entry(name, False, self.size, self.mtime_ns, self.mode)

    def read(self, offset: "int", length: "int") -> "bytes":
        if self._existing is not None:
            with self.lock:
                self._load()
        return os.pread(self._file.fileno(), length, offset)

    def write(self, offset: "int", data: "memoryview") -> "int":
        with self.lock:
            self._load()
            self._touch()
            done = 0
            while done < len(data):
                done += os.pwrite(self._file.fileno(), data[done:], offset + done)
                self.size = max(self.size, offset + done)
            self.was_written = True
            return done

    def truncate(self, size: "int") -> "None":
        with self.lock:
            if size == 0:
                self._drop_existing()
            self._load()
            os.ftruncate(self._file.fileno(), size)
            self.size = size
            self._touch()

    def set_time(self, mtime_ns: "int") -> "None":
        with self.lock:
            self.mtime_ns = mtime_ns
            self._has_own_time = True

    def upload(self, storage: "FileSystem", path: "str") -> "None":
        """Put the content onto the storage, unless that was done since the last change."""
        with self.lock:
            if not self.is_dirty:
                return
            self._file.seek(0)
            storage.write(path, self._file, self.mtime_ns, self.mode)
            self.is_dirty = False

    def close(self) -> "None":
        with self.lock:
            self._drop_existing()
            self._file.close()

    def _touch(self) -> "None":
        self.is_dirty = True
        if not self._has_own_time:
            self.mtime_ns = int(time.time() * 10**9)

    def _load(self) -> "None":
        existing = self._existing
        if existing is None:
            return
        at = 0
        while at < existing.size:
            data = existing.read(at, min(_CHUNK_BYTES, existing.size - at))
            if not data:
                break
            at += os.pwrite(self._file.fileno(), data, at)
        self.size = at
        self._drop_existing()

    def _drop_existing(self) -> "None":
        if self._existing is not None:
            self._existing.close()
            self._existing = None
