"""``pai://`` for pandas, pyarrow, Zarr, torch and whoever else speaks fsspec. Registered by entry point."""

from __future__ import annotations

import io
import os
import sys
from glob import has_magic

from fsspec.caching import BaseCache, register_cache  # type: ignore[import-untyped]
from fsspec.core import OpenFile  # type: ignore[import-untyped]
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped]

from openpaisdk.errors import Conflict, Forbidden, NotFound, PaiError, UsageError
from openpaisdk.storage.backends.base import (
    CHUNK,
    PART_BYTES,
    Backend,
    SourceFile,
    TargetFile,
    damaged,
    key_of,
    no_such,
)
from openpaisdk.storage.backends.hdfs_checksum import ChecksumComparison
from openpaisdk.storage.backends.webhdfs import IS_A_FOLDER, NO_FILE, NOT_A_FOLDER
from openpaisdk.storage.catalog import StorageOpener
from openpaisdk.storage.location import parse_location
from openpaisdk.storage.transfer.stream_upload import StreamUpload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from openpaisdk.storage.backends.base import Chunks
    from openpaisdk.storage.file_info import FileInfo

FRONT = "pai://"
AHEAD = 256 << 10
MOST_AHEAD = 8 << 20


class PaiFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Files of clusters: ``pai://<cluster>/<storage>/<path>``.

    ``http=True`` goes over HTTP also on the cluster's own machine. Listings are kept for two seconds unless
    ``listings_expiry_time`` says otherwise.
    """

    protocol = "pai"
    root_marker = ""
    async_impl = False

    def __init__(self, *args: Any, http: bool = False, **options: Any):
        options.setdefault("listings_expiry_time", 2)
        super().__init__(*args, **options)
        self._opener = StorageOpener(over_http=http)

    def _at(self, path: str) -> tuple[Backend, str]:
        with _as_oserror(path):
            try:
                return self._opener.open(parse_location(FRONT + self._strip_protocol(path)))
            except UsageError as e:  # no such cluster, no such storage: nothing is at that address
                raise FileNotFoundError(e.message) from e

    # -- looking -------------------------------------------------------------------------------

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        path = self._strip_protocol(path)
        found = None if options.get("refresh") or path not in self.dircache else self.dircache[path]
        if found is None:
            found = self._listed(path)
            self.dircache[path] = found
        return found if detail else sorted(entry["name"] for entry in found)

    def _listed(self, path: str) -> list[dict[str, Any]]:
        if not path or "/" not in path:
            raise FileNotFoundError(f"{FRONT}{path}: an address names a cluster and a storage.")
        backend, there = self._at(path)
        with _as_oserror(path):
            found = backend.status(there)
            if found is None:
                raise _no_file(path)
            if not found.is_folder:
                return [_info(path, found)]
            return [_info(f"{path}/{entry.name}", entry) for entry in backend.listing(there)]

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = None,
        **options: Any,
    ) -> Any:
        # fsspec passes over folders that cannot be listed: a lost connection would look like a small tree.
        told = _unless_hidden if on_error is None else on_error
        return super().walk(path, maxdepth=maxdepth, topdown=topdown, on_error=told, **options)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        parent = self.dircache.get(self._parent(path)) if self._parent(path) in self.dircache else None
        for entry in parent or ():
            if entry["name"] == path:
                return dict(entry)
        backend, there = self._at(path)
        with _as_oserror(path):
            found = backend.status(there)
        if found is None:
            raise _no_file(path)
        return _info(path, found)

    def modified(self, path: str) -> Any:
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def checksum(self, path: str) -> int:
        info = self.info(path)
        return int(key_of(info["name"], info["size"], info["mtime"]), 16)

    def ukey(self, path: str) -> str:
        info = self.info(path)
        return key_of(info["name"], info["size"], info["mtime"])

    # -- changing ------------------------------------------------------------------------------

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        if self.exists(path):
            raise FileExistsError(path)
        self.makedirs(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        backend, there = self._at(path)
        with _as_oserror(path):
            if not exist_ok and backend.status(there) is not None:
                raise FileExistsError(path)
            backend.make_folder(there)
        self.invalidate_cache(path)

    def rmdir(self, path: str) -> None:
        backend, there = self._at(path)
        with _as_oserror(path):
            found = backend.status(there)
            if found is not None and not found.is_folder:
                raise NotADirectoryError(path)
            if not backend.is_empty(there):
                raise OSError(39, "the folder is not empty", path)
        self._delete(path)

    def rm_file(self, path: str) -> None:
        if self.isdir(path):
            raise IsADirectoryError(path)
        self._delete(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for each in [path] if isinstance(path, str) else path:
            for found in self._meant(each):
                if not recursive:
                    self.rm_file(found)
                elif maxdepth is None:
                    self._delete(found)
                else:
                    self._delete_above(found, maxdepth)

    def _meant(self, path: str) -> list[str]:
        """What a pattern matches; a name that only looks like one means itself."""
        if not has_magic(path) or self.exists(path):
            return [path]
        found: list[str] = self.glob(path)
        if not found:
            raise _no_file(path)
        return found

    def _delete_above(self, path: str, maxdepth: int) -> None:
        """What lies deeper stays, and so do the folders on the way to it."""
        for each in reversed(
            self.expand_path([path], recursive=True, maxdepth=maxdepth, assume_literal=True)
        ):
            if not (self.isdir(each) and self.ls(each, refresh=True)):
                self._delete(each)

    def _delete(self, path: str) -> None:
        backend, there = self._at(path)
        with _as_oserror(path):
            if there == "/":
                raise UsageError("The root of a storage is never removed.")
            if backend.status(there) is None:
                raise _no_file(path)
            backend.delete(there)
        self.invalidate_cache(path)

    def mv(
        self, path1: str, path2: str, recursive: bool = False, maxdepth: Any = None, **options: Any
    ) -> None:
        (source, here), (target, there) = self._at(path1), self._at(path2)
        if source is not target:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        parent = there.rpartition("/")[0]
        with _as_oserror(path1):
            try:
                source.rename(here, there)
            except PaiError:
                if source.status(here) is None or source.status(parent) is not None:
                    raise
                source.make_folder(parent)  # as every other way to write makes the folders on its way
                source.rename(here, there)
        self.invalidate_cache(path1)
        self.invalidate_cache(path2)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        source, here = self._at(path1)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with _as_oserror(path1):
            outgoing = source.open(here)
            try:
                self._carry(outgoing, path2)
            finally:
                outgoing.close()

    def put_file(
        self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **options: Any
    ) -> None:
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        from openpaisdk.storage.backends.local import LocalSource

        with _as_oserror(rpath):
            outgoing = LocalSource(os.path.abspath(lpath), lpath)
            try:
                self._carry(outgoing, rpath, callback, replacing=mode != "create")
            finally:
                outgoing.close()

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = None, outfile: Any = None, **options: Any
    ) -> None:
        if outfile is not None or hasattr(lpath, "write"):
            self._read_into(lpath if outfile is None else outfile, rpath, callback)
            return
        lpath = os.fspath(lpath)
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        from openpaisdk.storage.backends.local import LocalBackend

        backend, there = self._at(rpath)
        with _as_oserror(rpath):
            outgoing = backend.open(there)
            try:
                target = os.path.abspath(lpath)
                facts = (outgoing.size, outgoing.mtime_ns, outgoing.mode)
                _carried(outgoing, LocalBackend().create(target, facts, outgoing.key), lpath, callback)
            finally:
                outgoing.close()

    def _read_into(self, file: Any, path: str, callback: Any) -> None:
        """By ourselves: in many versions fsspec's own way to an open file fails."""
        with self.open(path) as source:
            if callback is not None:
                callback.set_size(source.size)
            while data := source.read(CHUNK):
                file.write(data)
                if callback is not None:
                    callback.relative_update(len(data))

    def _carry(
        self, outgoing: SourceFile, path: str, callback: Any = None, *, replacing: bool = True
    ) -> None:
        backend, there = self._at(path)
        facts = (outgoing.size, outgoing.mtime_ns, outgoing.mode)
        _carried(outgoing, backend.create(there, facts, outgoing.key, replacing=replacing), path, callback)
        self.invalidate_cache(path)

    def invalidate_cache(self, path: str | None = None) -> None:
        if path is None:
            self.dircache.clear()
            return
        path = self._strip_protocol(path)
        # Folders on the way may have been made with it, so all of them may have changed.
        while path:
            self.dircache.pop(path, None)
            path = path.rpartition("/")[0]
        super().invalidate_cache(path)

    # -- open files ----------------------------------------------------------------------------

    def open(self, path: str, mode: str = "rb", *args: Any, compression: Any = None, **options: Any) -> Any:
        if "r" in mode or ("b" in mode and compression is None):
            return super().open(path, mode, *args, compression=compression, **options)
        text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
        file: PaiFile = super().open(path, mode.replace("b", "").replace("t", "") + "b", *args, **options)
        packed = _packed(file, path, compression)
        if "b" in mode:
            return _AroundBytes(packed, file)
        return _AroundText(packed, file, **text)

    def _open(
        self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, **options: Any
    ) -> PaiFile:
        if mode == "ab":
            # Before there is a file object: fsspec writes out every one that is thrown away.
            raise NotImplementedError(
                f"{FRONT}{path}: nothing can be appended to a file of a cluster; "
                "read it and write it anew, or begin another file."
            )
        if mode not in ("rb", "wb", "xb"):
            raise ValueError(f"A file of a cluster is opened with rb, wb or xb, not with {mode!r}.")
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        backend, there = self._at(path)
        options.setdefault("cache_type", "pai")
        replacing = mode != "xb"
        return PaiFile(
            self, path, backend, there, mode.replace("x", "w"), replacing, autocommit=autocommit, **options
        )

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        if (start or 0) < 0 or (end or 0) < 0:
            found: bytes = super().cat_file(path, start, end, **options)
            return found
        backend, there = self._at(path)
        with _as_oserror(path):
            outgoing = backend.open(there)
            try:
                first = min(start or 0, outgoing.size)
                last = outgoing.size if end is None else min(end, outgoing.size)
                return b"".join(bytes(chunk) for chunk in outgoing.chunks(first, max(0, last - first)))
            finally:
                outgoing.close()


class PaiFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file being read, from any place in it, or written from its beginning: whole or not at all.

    Without ``replacing`` (``"xb"``), of two who write it at the same time the second to close it is refused.
    """

    closed: bool

    def __init__(
        self,
        fs: PaiFileSystem,
        path: str,
        backend: Backend,
        there: str,
        mode: str,
        replacing: bool = True,
        **options: Any,
    ):
        self._backend = backend
        self._there = there
        self._replacing = replacing
        self._is_given_up = False
        self._opened_during = sys.exception()
        self._outgoing: SourceFile | None = None
        self._growing: StreamUpload | None = None
        self._pending = bytearray()
        if mode == "rb":
            with _as_oserror(path):
                self._outgoing = backend.open(there)
            options["size"] = self._outgoing.size
        super().__init__(fs, path, mode, block_size=PART_BYTES if mode != "rb" else MOST_AHEAD, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        if self._outgoing is None:
            raise ValueError("The file is closed, or open for writing.")
        with _as_oserror(self.path):
            # Some of fsspec's caches ask for whole blocks, also where the file ends in the middle of one.
            length = max(0, min(end, self._outgoing.size) - start)
            # Copied one by one: a chunk's memory is used again for the next.
            chunks = [bytes(chunk) for chunk in self._outgoing.chunks(start, length)]
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _initiate_upload(self) -> None:
        with _as_oserror(self.path):
            self._growing = StreamUpload(self._backend, self._there, replacing=self._replacing)

    def _upload_chunk(self, final: bool = False) -> bool:
        growing = self._growing
        if growing is None:
            raise ValueError("The file is not open for writing.")
        self._pending += self.buffer.getvalue()
        with _as_oserror(self.path):
            while len(self._pending) >= PART_BYTES or (final and self._pending):
                growing.add(bytes(self._pending[:PART_BYTES]))
                del self._pending[:PART_BYTES]
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        if self._growing is not None:
            with _as_oserror(self.path):
                self._growing.finish()
            self._growing = None
            self.fs.invalidate_cache(self.path)

    def discard(self) -> None:
        if self._growing is not None:
            self._growing.abandon()
            self._growing = None

    def write(self, data: Any) -> int:
        if self._is_given_up:
            return len(data)  # what those around us still had in hand
        written: int = super().write(data)
        return written

    def give_up(self) -> None:
        """An exception ended the writing: the target stays as it was."""
        if self.mode != "rb" and not self.closed:
            self._is_given_up = True

    def close(self) -> None:
        # fsspec.open closes its file in any case, and does not say that an exception came.
        came = sys.exception()
        if came is not None and came is not self._opened_during and _closed_by_fsspec():
            self.give_up()
        if self._is_given_up and not self.closed:
            self.discard()
            self.closed = True
        super().close()
        if self._outgoing is not None:
            self._outgoing.close()
            self._outgoing = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is not None:
            self.give_up()
        self.close()


def _closed_by_fsspec() -> bool:
    """Whether who asked to close is ``fsspec.open``, and not its user, who may mean it."""
    try:
        return sys._getframe(2).f_code is OpenFile.close.__code__
    except ValueError:  # nobody in Python did: pyarrow's threads
        return False


class _Around:
    """What is written around one of our files: it ends with it, and is given up with it."""

    _file: PaiFile

    def close(self) -> None:
        try:
            super().close()  # type: ignore[misc]
        except BaseException:
            self._file.give_up()
            raise
        finally:
            self._file.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is not None:
            self._file.give_up()
        self.close()


class _AroundText(_Around, io.TextIOWrapper):
    def __init__(self, packed: Any, file: PaiFile, **options: Any):
        self._file = file
        super().__init__(packed, **options)


class _AroundBytes(_Around, io.BufferedWriter):
    def __init__(self, packed: Any, file: PaiFile):
        self._file = file
        super().__init__(packed)


def _packed(file: PaiFile, path: str, compression: Any) -> Any:
    """The file itself, or what compresses into it."""
    from fsspec.compression import compr  # type: ignore[import-untyped]
    from fsspec.core import get_compression

    found = get_compression(path, compression)
    return file if found is None else compr[found](file, mode="w")


class AdaptiveReadAhead(BaseCache):  # type: ignore[misc]
    """Reads what is asked for where reading jumps about, and further and further ahead where it goes on."""

    name = "pai"

    def __init__(self, blocksize: int, fetcher: Callable[[int, int], bytes], size: int):
        super().__init__(blocksize, fetcher, size)
        self._start = 0
        self._held = b""
        self._next = 0
        self._ahead = 0

    def _fetch(self, start: int | None, end: int | None) -> bytes:
        first = 0 if start is None else start
        last = self.size if end is None else min(end, self.size)
        if first >= last:
            return b""
        held_end = self._start + len(self._held)
        if self._start <= first and last <= held_end:
            self._next = last
            return self._held[first - self._start : last - self._start]
        goes_on = first == self._next if first else last < AHEAD
        self._ahead = min(max(AHEAD, self._ahead * 2), MOST_AHEAD) if goes_on else 0
        self._next = last
        front = self._held[first - self._start :] if self._start <= first < held_end else b""
        got: bytes = self.fetcher(first + len(front), min(self.size, last + self._ahead))
        data = front + got if front else got
        self._start, self._held = first, data if self._ahead else b""
        return data[: last - first] if self._ahead else data


register_cache(AdaptiveReadAhead, clobber=True)


def _carried(outgoing: SourceFile, incoming: TargetFile, shown: str, callback: Any = None) -> None:
    if callback is not None:
        callback.set_size(outgoing.size)
    comparison = ChecksumComparison(outgoing, incoming)

    def chunks(offset: int, length: int) -> Chunks:
        return comparison.seen(offset, outgoing.chunks(offset, length))

    try:
        for offset, length in incoming.missing(outgoing.longest_parts):
            incoming.put(offset, length, lambda at=offset, length=length: chunks(at, length))  # type: ignore[misc]
            comparison.arrived(offset)
            if callback is not None:
                callback.relative_update(length)
        outgoing.check()
        if comparison.is_same(outgoing.size) is False:
            incoming.abandon()
            raise damaged(shown)
        try:
            incoming.finish(outgoing.size)
        except Conflict:
            incoming.abandon()
            raise
    finally:
        incoming.close()


def _info(path: str, entry: FileInfo) -> dict[str, Any]:
    return {
        "name": path.rstrip("/"),
        "size": entry.size,
        "type": "directory" if entry.is_folder else "file",
        "mtime": entry.mtime_ns / 1e9,
        "mode": entry.mode,
        "owner": entry.owner,
        "group": entry.group,
    }


def _unless_hidden(error: OSError) -> None:
    """What is not there, or not for us, is passed over as everywhere in fsspec; other trouble is not."""
    if not isinstance(error, (FileNotFoundError, PermissionError)):
        raise error


def _no_file(path: str) -> FileNotFoundError:
    return FileNotFoundError(no_such(FRONT + PaiFileSystem._strip_protocol(path)).message)


class _as_oserror:  # noqa: N801 - read as a word: with _as_oserror(path)
    """fsspec's callers look for the exceptions of the operating system."""

    def __init__(self, path: str):
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if isinstance(error, PaiError) and error.code == NO_FILE:
            raise _no_file(self.path) from error  # a storage knows paths, and people addresses
        if isinstance(error, NotFound) or (isinstance(error, PaiError) and error.status == 404):
            raise FileNotFoundError(error.message) from error
        if isinstance(error, Forbidden):
            raise PermissionError(error.message) from error
        if isinstance(error, PaiError) and error.code == IS_A_FOLDER:
            raise IsADirectoryError(error.message) from error
        if isinstance(error, PaiError) and error.code == NOT_A_FOLDER:
            raise NotADirectoryError(error.message) from error
        if isinstance(error, Conflict):
            raise FileExistsError(error.message) from error
        if isinstance(error, PaiError) and not isinstance(error, UsageError):
            raise OSError(error.message) from error
