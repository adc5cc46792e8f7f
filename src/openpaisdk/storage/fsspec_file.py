"""Open files of the fsspec file system: reading with adaptive read-ahead, atomic writing."""

from __future__ import annotations

import io
import sys

from fsspec.caching import BaseCache, register_cache  # type: ignore[import-untyped]
from fsspec.core import OpenFile  # type: ignore[import-untyped]
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped]

from openpaisdk.storage.backends.base import PART_BYTES, Backend, SourceFile
from openpaisdk.storage.os_errors import as_oserror
from openpaisdk.storage.transfer.stream_upload import StreamUpload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

MIN_READ_AHEAD_BYTES = 256 << 10
MAX_READ_AHEAD_BYTES = 8 << 20


class PaiFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file open for reading at any offset, or for writing from its beginning; a write is atomic.

    Without ``overwrite`` (``"xb"``), of two simultaneous writers the second one to close gets an error.
    """

    closed: bool

    def __init__(
        self,
        fs: AbstractFileSystem,
        path: str,
        backend: Backend,
        there: str,
        mode: str,
        overwrite: bool = True,
        **options: Any,
    ):
        self._backend = backend
        self._there = there
        self._overwrite = overwrite
        self._is_aborted = False
        self._opened_during = sys.exception()
        self._source: SourceFile | None = None
        self._upload: StreamUpload | None = None
        self._pending = bytearray()
        if mode == "rb":
            with as_oserror(path):
                self._source = backend.open(there)
            options["size"] = self._source.size
        super().__init__(
            fs, path, mode, block_size=PART_BYTES if mode != "rb" else MAX_READ_AHEAD_BYTES, **options
        )

    def _fetch_range(self, start: int, end: int) -> bytes:
        if self._source is None:
            raise ValueError("The file is closed, or open for writing.")
        with as_oserror(self.path):
            # Some of fsspec's caches request whole blocks, also where the file ends in the middle of one.
            length = max(0, min(end, self._source.size) - start)
            # Each chunk is copied: its memory is reused for the next one.
            chunks = [bytes(chunk) for chunk in self._source.chunks(start, length)]
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _initiate_upload(self) -> None:
        with as_oserror(self.path):
            self._upload = StreamUpload(self._backend, self._there, overwrite=self._overwrite)

    def _upload_chunk(self, final: bool = False) -> bool:
        upload = self._upload
        if upload is None:
            raise ValueError("The file is not open for writing.")
        self._pending += self.buffer.getvalue()
        with as_oserror(self.path):
            while len(self._pending) >= PART_BYTES or (final and self._pending):
                upload.add(bytes(self._pending[:PART_BYTES]))
                del self._pending[:PART_BYTES]
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        if self._upload is not None:
            with as_oserror(self.path):
                self._upload.finish()
            self._upload = None
            self.fs.invalidate_cache(self.path)

    def discard(self) -> None:
        if self._upload is not None:
            self._upload.abandon()
            self._upload = None

    def write(self, data: Any) -> int:
        if self._is_aborted:
            return len(data)  # what the wrappers still had in their buffers
        written: int = super().write(data)
        return written

    def abort(self) -> None:
        """Discard the write after an exception: the target is unchanged."""
        if self.mode != "rb" and not self.closed:
            self._is_aborted = True

    def close(self) -> None:
        # fsspec.open closes its file in any case, and does not report that an exception was raised.
        current = sys.exception()
        if current is not None and current is not self._opened_during and _closed_by_fsspec():
            self.abort()
        if self._is_aborted and not self.closed:
            self.discard()
            self.closed = True
        super().close()
        if self._source is not None:
            self._source.close()
            self._source = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        self.close()


def _closed_by_fsspec() -> bool:
    """Whether the caller of close is ``fsspec.open``, and not its user, who may mean it."""
    try:
        return sys._getframe(2).f_code is OpenFile.close.__code__
    except ValueError:  # no Python caller: pyarrow's threads
        return False


class _PaiFileWriter:
    """Mixin of writers around a PaiFile: closes and aborts it with itself."""

    _file: PaiFile

    def close(self) -> None:
        try:
            super().close()  # type: ignore[misc]
        except BaseException:
            self._file.abort()
            raise
        finally:
            self._file.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is not None:
            self._file.abort()
        self.close()


class TextWriter(_PaiFileWriter, io.TextIOWrapper):
    def __init__(self, compressed: Any, file: PaiFile, **options: Any):
        self._file = file
        super().__init__(compressed, **options)


class BytesWriter(_PaiFileWriter, io.BufferedWriter):
    def __init__(self, compressed: Any, file: PaiFile):
        self._file = file
        super().__init__(compressed)


def compressed_writer(file: PaiFile, path: str, compression: Any) -> Any:
    """The file itself, or a compressing writer around it."""
    from fsspec.compression import compr  # type: ignore[import-untyped]
    from fsspec.core import get_compression

    codec = get_compression(path, compression)
    return file if codec is None else compr[codec](file, mode="w")


class AdaptiveReadAhead(BaseCache):  # type: ignore[misc]
    """Read-ahead cache: none for random reads, doubling for sequential reads."""

    name = "pai"

    def __init__(self, blocksize: int, fetcher: Callable[[int, int], bytes], size: int):
        super().__init__(blocksize, fetcher, size)
        self._start = 0
        self._cached = b""
        self._next = 0
        self._ahead = 0

    def _fetch(self, start: int | None, end: int | None) -> bytes:
        first = 0 if start is None else start
        last = self.size if end is None else min(end, self.size)
        if first >= last:
            return b""
        cached_end = self._start + len(self._cached)
        if self._start <= first and last <= cached_end:
            self._next = last
            return self._cached[first - self._start : last - self._start]
        is_sequential = first == self._next if first else last < MIN_READ_AHEAD_BYTES
        self._ahead = (
            min(max(MIN_READ_AHEAD_BYTES, self._ahead * 2), MAX_READ_AHEAD_BYTES) if is_sequential else 0
        )
        self._next = last
        prefix = self._cached[first - self._start :] if self._start <= first < cached_end else b""
        got: bytes = self.fetcher(first + len(prefix), min(self.size, last + self._ahead))
        data = prefix + got if prefix else got
        self._start, self._cached = first, data if self._ahead else b""
        return data[: last - first] if self._ahead else data


register_cache(AdaptiveReadAhead, clobber=True)
