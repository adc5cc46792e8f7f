"""fsspec file system of ``pai://``, for pandas, pyarrow, Zarr, torch and others. Registered by entry
point."""

from __future__ import annotations

import os
from glob import has_magic

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from openpaisdk.storage.backends.base import (
    CHUNK_BYTES,
    Backend,
    SourceFile,
    TargetFile,
    content_key,
)
from openpaisdk.storage.catalog import StorageOpener
from openpaisdk.storage.fsspec_file import BytesWriter, PaiFile, TextWriter, compressed_writer
from openpaisdk.storage.location import parse_location
from openpaisdk.storage.os_errors import URL_PREFIX, as_oserror, no_such_file
from openpaisdk.storage.transfer.file_transfer import transfer_file
from paiprotocol.errors import PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from openpaisdk.storage.file_info import FileInfo
    from openpaisdk.storage.location import Location


class PaiFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Files of clusters: ``pai://<cluster>/<storage>/<path>``.

    ``http=True`` uses HTTP also on the cluster's own machine. Listings are cached for two seconds unless
    ``listings_expiry_time`` is given.
    """

    protocol = "pai"
    root_marker = ""
    async_impl = False

    def __init__(self, *args: Any, http: bool = False, **options: Any):
        options.setdefault("listings_expiry_time", 2)
        super().__init__(*args, **options)
        self._opener = StorageOpener(over_http=http)

    def _resolve(self, path: str) -> tuple[Backend, str]:
        return self._open_backend(self._opener.open, path)

    def _resolve_for_writing(self, path: str) -> tuple[Backend, str]:
        return self._open_backend(self._opener.open_for_writing, path)

    def _open_backend(
        self, opened: Callable[[Location], tuple[Backend, str]], path: str
    ) -> tuple[Backend, str]:
        with as_oserror(path):
            try:
                return opened(self._location(path))
            except UsageError as e:  # no such cluster or storage: nothing exists at that address
                raise FileNotFoundError(e.message) from e

    def _location(self, path: str) -> Location:
        return parse_location(URL_PREFIX + self._strip_protocol(path))

    def _job_names(self, path: str) -> list[str] | None:
        """The names in ``pai://<cluster>/jobs``; None for any other path."""
        with as_oserror(path):
            try:
                return self._opener.job_names(self._location(path))
            except UsageError as e:
                raise FileNotFoundError(e.message) from e

    # -- queries -------------------------------------------------------------------------------

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        path = self._strip_protocol(path)
        entries = None if options.get("refresh") or path not in self.dircache else self.dircache[path]
        if entries is None:
            entries = self._list(path)
            self.dircache[path] = entries
        return entries if detail else sorted(entry["name"] for entry in entries)

    def _list(self, path: str) -> list[dict[str, Any]]:
        if not path or "/" not in path:
            raise FileNotFoundError(f"{URL_PREFIX}{path}: an address needs a cluster and a storage.")
        names = self._job_names(path)
        if names is not None:
            return [_folder_info(f"{path}/{name}") for name in names]
        backend, there = self._resolve(path)
        with as_oserror(path):
            info = backend.status(there)
            if info is None:
                raise no_such_file(path)
            if not info.is_folder:
                return [_info(path, info)]
            return [_info(f"{path}/{entry.name}", entry) for entry in backend.list_folder(there)]

    def glob(self, path: str, maxdepth: int | None = None, **options: Any) -> Any:
        # fsspec finds nothing below a folder that is missing; a cluster that is missing is an error.
        cluster_and_storage = self._strip_protocol(path).split("/")[:2]
        if len(cluster_and_storage) == 2 and not has_magic("/".join(cluster_and_storage)):
            root = "/".join(cluster_and_storage)
            if self._job_names(root) is None:
                self._resolve(root)
        return super().glob(path, maxdepth=maxdepth, **options)

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = None,
        **options: Any,
    ) -> Any:
        # fsspec skips folders that cannot be listed: a lost connection would look like a small tree.
        on_error = _raise_unless_hidden if on_error is None else on_error
        return super().walk(path, maxdepth=maxdepth, topdown=topdown, on_error=on_error, **options)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        parent = self.dircache.get(self._parent(path)) if self._parent(path) in self.dircache else None
        for entry in parent or ():
            if entry["name"] == path:
                return dict(entry)
        if self._job_names(path) is not None:
            return _folder_info(path)
        backend, there = self._resolve(path)
        with as_oserror(path):
            info = backend.status(there)
        if info is None:
            raise no_such_file(path)
        return _info(path, info)

    def modified(self, path: str) -> Any:
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def checksum(self, path: str) -> int:
        info = self.info(path)
        return int(content_key(info["name"], info["size"], info["mtime"]), 16)

    def ukey(self, path: str) -> str:
        info = self.info(path)
        return content_key(info["name"], info["size"], info["mtime"])

    # -- changes -------------------------------------------------------------------------------

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        if self.exists(path):
            raise FileExistsError(path)
        self.makedirs(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        backend, there = self._resolve_for_writing(path)
        with as_oserror(path):
            if not exist_ok and backend.status(there) is not None:
                raise FileExistsError(path)
            backend.make_folder(there)
        self.invalidate_cache(path)

    def rmdir(self, path: str) -> None:
        backend, there = self._resolve_for_writing(path)
        with as_oserror(path):
            info = backend.status(there)
            if info is not None and not info.is_folder:
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
            for match in self._expand_pattern(each):
                if not recursive:
                    self.rm_file(match)
                elif maxdepth is None:
                    self._delete(match)
                else:
                    self._delete_to_depth(match, maxdepth)

    def _expand_pattern(self, path: str) -> list[str]:
        """Paths that match a pattern; an existing path with pattern characters stands for itself."""
        if not has_magic(path) or self.exists(path):
            return [path]
        paths: list[str] = self.glob(path)
        if not paths:
            raise no_such_file(path)
        return paths

    def _delete_to_depth(self, path: str, maxdepth: int) -> None:
        """Delete down to a depth; what lies deeper stays, and so do the folders above it."""
        for each in reversed(
            self.expand_path([path], recursive=True, maxdepth=maxdepth, assume_literal=True)
        ):
            if not (self.isdir(each) and self.ls(each, refresh=True)):
                self._delete(each)

    def _delete(self, path: str) -> None:
        backend, there = self._resolve_for_writing(path)
        with as_oserror(path):
            if there == "/":
                raise UsageError("The root of a storage cannot be removed.")
            if backend.status(there) is None:
                raise no_such_file(path)
            backend.delete(there)
        self.invalidate_cache(path)

    def mv(
        self, path1: str, path2: str, recursive: bool = False, maxdepth: Any = None, **options: Any
    ) -> None:
        (source, here), (target, there) = self._resolve_for_writing(path1), self._resolve_for_writing(path2)
        if source is not target:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        parent = there.rpartition("/")[0]
        with as_oserror(path1):
            try:
                source.rename(here, there)
            except PaiError:
                if source.status(here) is None or source.status(parent) is not None:
                    raise
                source.make_folder(parent)  # as all other writes create missing parent folders
                source.rename(here, there)
        self.invalidate_cache(path1)
        self.invalidate_cache(path2)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        source, here = self._resolve(path1)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with as_oserror(path1):
            source_file = source.open(here)
            try:
                self._write_file(source_file, path2)
            finally:
                source_file.close()

    def put_file(
        self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **options: Any
    ) -> None:
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        from openpaisdk.storage.backends.local import LocalSource

        with as_oserror(rpath):
            source = LocalSource(os.path.abspath(lpath), lpath)
            try:
                self._write_file(source, rpath, callback, overwrite=mode != "create")
            finally:
                source.close()

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

        backend, there = self._resolve(rpath)
        with as_oserror(rpath):
            source = backend.open(there)
            try:
                full_path = os.path.abspath(lpath)
                file_stat = (source.size, source.mtime_ns, source.mode)
                _transfer(source, LocalBackend().create(full_path, file_stat, source.key), lpath, callback)
            finally:
                source.close()

    def _read_into(self, file: Any, path: str, callback: Any) -> None:
        """Own implementation: fsspec's download to an open file fails in many of its versions."""
        with self.open(path) as source:
            if callback is not None:
                callback.set_size(source.size)
            while data := source.read(CHUNK_BYTES):
                file.write(data)
                if callback is not None:
                    callback.relative_update(len(data))

    def _write_file(
        self, source: SourceFile, path: str, callback: Any = None, *, overwrite: bool = True
    ) -> None:
        backend, there = self._resolve_for_writing(path)
        file_stat = (source.size, source.mtime_ns, source.mode)
        _transfer(source, backend.create(there, file_stat, source.key, overwrite=overwrite), path, callback)
        self.invalidate_cache(path)

    def invalidate_cache(self, path: str | None = None) -> None:
        if path is None:
            self.dircache.clear()
            return
        path = self._strip_protocol(path)
        # Parent folders may have been created with it, so all of them may have changed.
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
        compressed = compressed_writer(file, path, compression)
        if "b" in mode:
            return BytesWriter(compressed, file)
        return TextWriter(compressed, file, **text)

    def _open(
        self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, **options: Any
    ) -> PaiFile:
        if mode == "ab":
            # Before a file object exists: fsspec flushes every file object that is garbage-collected.
            raise NotImplementedError(
                f"{URL_PREFIX}{path}: files of a cluster cannot be appended to; "
                "read the file and write it again, or write another file."
            )
        if mode not in ("rb", "wb", "xb"):
            raise ValueError(f"Files of a cluster can be opened with rb, wb or xb, not with {mode!r}.")
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        backend, there = self._resolve(path) if mode == "rb" else self._resolve_for_writing(path)
        options.setdefault("cache_type", "pai")
        overwrite = mode != "xb"
        return PaiFile(
            self, path, backend, there, mode.replace("x", "w"), overwrite, autocommit=autocommit, **options
        )

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        if (start or 0) < 0 or (end or 0) < 0:
            content: bytes = super().cat_file(path, start, end, **options)
            return content
        backend, there = self._resolve(path)
        with as_oserror(path):
            source = backend.open(there)
            try:
                first = min(start or 0, source.size)
                last = source.size if end is None else min(end, source.size)
                return b"".join(bytes(chunk) for chunk in source.chunks(first, max(0, last - first)))
            finally:
                source.close()


def _transfer(source: SourceFile, target: TargetFile, display_path: str, callback: Any = None) -> None:
    if callback is not None:
        callback.set_size(source.size)
    transfer_file(source, target, display_path, None if callback is None else callback.relative_update)


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


def _folder_info(path: str) -> dict[str, Any]:
    """Information about a folder that is on no storage: a job, or the list of jobs."""
    return {"name": path.rstrip("/"), "size": 0, "type": "directory"}


def _raise_unless_hidden(error: OSError) -> None:
    """Missing and forbidden folders are skipped, as everywhere in fsspec; other errors are raised."""
    if not isinstance(error, (FileNotFoundError, PermissionError)):
        raise error
