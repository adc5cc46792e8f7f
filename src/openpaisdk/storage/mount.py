"""A storage as a file system that can be mounted (``pai mount``). Linux only."""

from __future__ import annotations

import errno
import os
import sys
import time

from openpaisdk.storage.backends.base import content_key
from openpaisdk.storage.backends.descriptor_io import DescriptorSource
from openpaisdk.storage.os_errors import as_errno
from openpaisdk.storage.transfer.file_transfer import transfer_file
from paiprotocol.transfer.pack_format import MAX_PACKED_FILE_BYTES
from pairuntime.fuse.file_system import Entry, FileSystem, OpenFile

assert sys.platform == "linux"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from openpaisdk.storage.backends.base import Backend, SourceFile
    from openpaisdk.storage.file_info import FileInfo


class StorageFileSystem(FileSystem):
    """The files below one folder of a storage."""

    def __init__(self, backend: Backend, folder: str, *, is_read_only: bool = False):
        self._backend = backend
        self._folder = folder.rstrip("/")
        self.is_read_only = is_read_only

    def _at(self, path: str) -> str:
        return (self._folder + path).rstrip("/") or "/"

    def status(self, path: str) -> Entry | None:
        with as_errno(path):
            info = self._backend.status(self._at(path))
        return None if info is None else _entry(info)

    def entries(self, path: str) -> list[Entry]:
        with as_errno(path):
            return [_entry(info) for info in self._backend.list_folder(self._at(path))]

    def open(self, path: str) -> OpenFile:
        with as_errno(path):
            return _OpenStorageFile(self._backend.open(self._at(path)), path)

    def write(self, path: str, source: BinaryIO, mtime_ns: int, mode: int) -> None:
        at = self._at(path)
        staged = _StagedSource(source, self._backend.display_path(at), mtime_ns, mode)
        with as_errno(path):
            if staged.size <= MAX_PACKED_FILE_BYTES:
                self._backend.write_bytes(at, os.pread(staged.fd, staged.size, 0), mtime_ns, mode)
                return
            target = self._backend.create(at, (staged.size, mtime_ns, mode), staged.key)
            try:
                transfer_file(staged, target, staged.what)
            except BaseException:
                target.abandon()  # the program that closed the file gets an error and will write it again
                raise

    def make_folder(self, path: str) -> None:
        with as_errno(path):
            self._backend.make_folder(self._at(path))

    def delete_file(self, path: str) -> None:
        entry = self.status(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "not found", path)
        if entry.is_folder:
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        with as_errno(path):
            self._backend.delete(self._at(path))

    def delete_folder(self, path: str) -> None:
        with as_errno(path):
            if not self._backend.is_empty(self._at(path)):
                raise OSError(errno.ENOTEMPTY, "not empty", path)
            self._backend.delete(self._at(path))

    def rename(self, path: str, target: str) -> None:
        if self.status(path) is None:
            raise FileNotFoundError(errno.ENOENT, "not found", path)
        with as_errno(path):
            self._backend.rename(self._at(path), self._at(target))

    def free_bytes(self) -> int | None:
        with as_errno("/"):
            return self._backend.free_bytes(self._at("/"))


class _OpenStorageFile(OpenFile):
    def __init__(self, source: SourceFile, path: str):
        self._source = source
        self._path = path
        self.size = source.size
        self.mtime_ns = source.mtime_ns

    def read(self, offset: int, length: int) -> bytes:
        with as_errno(self._path):
            return b"".join(map(bytes, self._source.chunks(offset, length)))

    def fileno(self) -> int:
        return self._source.fileno()

    def close(self) -> None:
        self._source.close()


class _StagedSource(DescriptorSource):
    """A staged file, which nothing changes while it is uploaded; the mount closes it."""

    def __init__(self, file: BinaryIO, what: str, mtime_ns: int, mode: int):
        self.fd = file.fileno()
        self.what = what
        self.size = os.fstat(self.fd).st_size
        self.mtime_ns = mtime_ns
        self.mode = mode
        self.key = content_key(what, self.size, time.time_ns(), os.getpid(), id(self))

    def close(self) -> None:
        pass


def _entry(info: FileInfo) -> Entry:
    return Entry(info.name, info.is_folder, info.size, info.mtime_ns, info.mode)
