"""Files of remote storages that have folders: another HDFS, and shares of Samba.

A file is written beside its target, which it replaces when it is complete. What has arrived of an upload
stays there, hidden from listings, until the upload goes on.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from paicluster.remote_storages.remote_tree import (
    MAX_DELETED,
    STEP_S,
    ChangeStep,
    NewFile,
    RemoteEntry,
    RemoteFile,
    RemoteListing,
    RemoteTree,
    RemoteUpload,
    missing_entry,
    missing_file,
)
from paiprotocol.errors import Conflict, ConnectionFailed, Forbidden, InvalidParameters, PaiError

if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Range
    from openpaisdk.storage.backends.samba import SambaBackend
    from openpaisdk.storage.backends.webhdfs import WebHdfs
    from openpaisdk.storage.file_info import FileInfo

MAX_SHARE_ENTRIES = 10_000
"""Entries of a folder of a share that are listed: it has no pages, and each entry takes the server's time."""
_FILE_MODE = 0o644

B = TypeVar("B", "WebHdfs", "SambaBackend")


class FolderTree(RemoteTree, Generic[B]):
    def __init__(self, backend: Callable[[], B]):
        """``backend`` returns the backend of the calling thread."""
        self._backend: Callable[[], B] = backend

    @abstractmethod
    def list_page(self, where: str, cursor: str) -> tuple[list[FileInfo], str, bool]:
        """Some entries of a folder, what continues the listing, and whether some cannot be listed."""

    @abstractmethod
    def read_range(self, where: str, at: int, size: int) -> bytes: ...

    @abstractmethod
    def delete_folder(self, where: str) -> ChangeStep: ...

    def list_folder(self, names: list[str], path: str, cursor: str) -> RemoteListing:
        where = self._where(names, path)
        if not cursor:
            info = self._backend().status(where)
            if info is None and path.strip("/"):
                raise missing_entry(path)
            if info is None:
                # The folder of a user who has stored nothing yet.
                return RemoteListing(None, [])
            if not info.is_folder:
                return RemoteListing(_entry(info), [])
        entries, next_cursor, is_truncated = self.list_page(where, cursor)
        shown = sorted(filter(_is_shown, entries), key=lambda entry: entry.name)
        return RemoteListing(None, [_entry(entry) for entry in shown], next_cursor, is_truncated)

    def open(self, names: list[str], path: str) -> RemoteFile:
        where = self._where(names, path)
        info = self._backend().status(where)
        if info is None or info.is_folder:
            raise missing_file(path)
        return RemoteFile(names[-1], info.size, self, where, _version(info))

    def read_block(self, file: RemoteFile, at: int, size: int) -> bytes:
        data = self.read_range(file.key, at, size)
        is_end = at + size >= file.size
        if len(data) != size or (is_end and not self._is_unchanged(file)):
            raise PaiError(f"{file.name} has changed while it was read.")
        return data

    def _is_unchanged(self, file: RemoteFile) -> bool:
        info = self._backend().status(file.key)
        return info is not None and _version(info) == file.version

    def make_folder(self, names: list[str], path: str) -> None:
        where = self._where(names, path)
        self._check_parent(names, path)
        info = self._backend().status(where)
        if info is not None and not info.is_folder:
            raise Conflict(f"{path} already exists, and is a file.")
        self._backend().make_folder(where)

    def delete(self, names: list[str], path: str) -> ChangeStep:
        where = self._where(names, path)
        info = self._backend().status(where)
        if info is None:
            raise missing_entry(path)
        if info.is_folder:
            return self.delete_folder(where)
        self._backend().delete(where)
        return ChangeStep(1, True)

    def move(
        self, names: list[str], path: str, target_names: list[str], target: str, *, resumes: bool
    ) -> ChangeStep:
        where, target_where = self._where(names, path), self._where(target_names, target)
        if self._backend().status(where) is None:
            raise missing_entry(path)
        if self._check_parent(target_names, target) is None:
            raise missing_entry(_parent_of(target))
        if self._backend().status(target_where) is not None:
            raise Conflict(f"{target} already exists.")
        self._backend().rename(where, target_where, overwrite=False)
        return ChangeStep(1, True)

    def open_upload(self, names: list[str], file: NewFile, key: str) -> RemoteUpload:
        from openpaisdk.storage.backends.base import content_key

        where = self._where(names, file.path)
        has_parent = self._check_parent(names, file.path) is not None
        info = self._backend().status(where)
        if info is not None and info.is_folder:
            raise Conflict(f"{file.path} already exists, and is a folder.")
        if info is not None and not file.overwrite:
            raise Conflict(f"{file.path} already exists.")
        target = self._backend().create(
            where,
            (file.size, time.time_ns(), _FILE_MODE),
            content_key(key, file.size),
            overwrite=file.overwrite,
        )
        missing = _parts(target.missing_ranges(), file.size)
        return RemoteUpload(
            file, target, missing, None if has_parent else lambda: self._make_parent(names, file.path)
        )

    def _make_parent(self, names: list[str], path: str) -> None:
        self._backend().make_folder("/" + "/".join(names[:-1]))

    def _where(self, names: list[str], path: str) -> str:
        """Path on the storage. Some characters would lead out of what the user may see."""
        where = "/" + "/".join(names)
        if reason := self._backend().invalid_name_reason(where):
            raise InvalidParameters(f"{path} is not a path of this storage: {reason}.")
        return where

    def _check_parent(self, names: list[str], path: str) -> FileInfo | None:
        """The parent of a new entry, None if it does not exist; Conflict if it is a file."""
        parent = self._backend().status("/" + "/".join(names[:-1]))
        if parent is not None and not parent.is_folder:
            raise Conflict(f"{_parent_of(path)} is a file and not a folder.")
        return parent


class HdfsTree(FolderTree["WebHdfs"]):
    def list_page(self, where: str, cursor: str) -> tuple[list[FileInfo], str, bool]:
        return (*self._backend().list_after(where, cursor), False)

    def read_range(self, where: str, at: int, size: int) -> bytes:
        data = bytearray()
        for chunk in self._backend().read(where, at, size):
            data += chunk
            if len(data) > size:
                raise ConnectionFailed("The HDFS sent more of a file than was asked for.")
        return bytes(data)

    def delete_folder(self, where: str) -> ChangeStep:
        """Delete a folder in one request: the name node deletes what is in it."""
        self._backend().delete(where)
        return ChangeStep(1, True)


class ShareTree(FolderTree["SambaBackend"]):
    def __init__(
        self,
        backend: Callable[[], SambaBackend],
        own_folder: str = "",
        *,
        max_entries: int = MAX_SHARE_ENTRIES,
        max_deleted: int = MAX_DELETED,
    ):
        """``own_folder``: the only one that the user sees; empty: there is no such limit."""
        super().__init__(backend)
        self._max_entries = max_entries
        self._max_deleted = max_deleted
        self._own_folder = own_folder

    def _where(self, names: list[str], path: str) -> str:
        where = super()._where(names, path)
        self._check_own_folder()
        return where

    def _make_parent(self, names: list[str], path: str) -> None:
        super()._make_parent(names, path)
        # Another user may have made it at the same time.
        self._check_own_folder()

    def _check_own_folder(self) -> None:
        """Raise an error if the server would open the folder of another user: most ignore the case of names,
        and Windows has short ones."""
        if not self._own_folder:
            return
        if self._own_folder.endswith("."):
            raise Forbidden(
                f"A share has no folder of user {self._own_folder}: Windows ignores dots at the end of names."
            )
        names = self._backend().names_in_share("/" + self._own_folder)
        if names and self._own_folder not in names:
            raise Forbidden(
                f"The folder {names[0]} of this storage is not that of user {self._own_folder}: the names "
                "differ in case.",
                hint="An administrator can rename the folder, or the user.",
            )

    def list_page(self, where: str, cursor: str) -> tuple[list[FileInfo], str, bool]:
        entries = self._backend().list_some(where, self._max_entries + 1)
        return entries[: self._max_entries], "", len(entries) > self._max_entries

    def read_range(self, where: str, at: int, size: int) -> bytes:
        return self._backend().read_range(where, at, size)

    def delete_folder(self, where: str) -> ChangeStep:
        """Delete a folder entry by entry: only empty folders can be deleted. A step ends after some time, but
        deletes one entry at least."""
        backend = self._backend()
        ends = time.monotonic() + STEP_S
        count = 0
        folders = [where]
        while folders:
            entries = backend.list_some(folders[-1], self._max_deleted)
            for entry in entries:
                if entry.is_folder:
                    continue
                if count and (count >= self._max_deleted or time.monotonic() > ends):
                    return ChangeStep(count, False)
                backend.delete_file(f"{folders[-1]}/{entry.name}")
                count += 1
            inner = [f"{folders[-1]}/{entry.name}" for entry in entries if entry.is_folder]
            if inner:
                folders += inner
            elif len(entries) < self._max_deleted:
                if count and (count >= self._max_deleted or time.monotonic() > ends):
                    return ChangeStep(count, False)
                backend.delete_empty(folders.pop())
                count += 1
        return ChangeStep(count, True)


def _is_shown(entry: FileInfo) -> bool:
    from openpaisdk.storage.backends.base import PARTIAL_SUFFIX

    return not entry.name.endswith(PARTIAL_SUFFIX)


def _entry(info: FileInfo) -> RemoteEntry:
    return RemoteEntry(info.name, info.is_folder, info.size, info.mtime_ns // 1_000_000)


def _version(info: FileInfo) -> str:
    return f"{info.size} {info.mtime_ns}"


def _parent_of(path: str) -> str:
    return "/" + path.strip("/").rpartition("/")[0]


def _parts(missing: list[Range], size: int) -> list[Range]:
    """The bytes that are missing at the end of a file, in parts that fit into the memory of an upload."""
    from openpaisdk.storage.backends.object_store import object_part_size

    if size == 0 or not missing:
        return missing
    part = object_part_size(size)
    return [(at, min(part, size - at)) for at in range(missing[0][0], size, part)]
