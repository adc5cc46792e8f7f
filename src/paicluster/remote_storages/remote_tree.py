"""Files and folders of a remote storage, as pages see them: what every kind of storage can do, in threads.

A tree is for one user. Paths are those that the user wrote, for errors; names lead from the root of the
storage to the same place.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paiprotocol.errors import (
    Conflict,
    ConnectionFailed,
    InvalidParameters,
    NotFound,
    PaiError,
    TooManyRequests,
    Unavailable,
)

if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Chunks, Range, TargetFile

MAX_PAGE_ENTRIES = 1000
"""Entries of one page of a listing: as many as a cloud or an HDFS lists at once."""
MAX_DELETED = 1000
"""Objects that one step deletes: as many as S3 deletes at once."""
STEP_S = 5.0
"""After this time a step changes no more: a page shows what it does."""
MAX_PART_BYTES = 16 << 20
"""Bytes of an upload that are sent at once. Each upload has one part in memory."""
MAX_UPLOAD_BYTES = 10_000 * MAX_PART_BYTES
"""S3 has at most 10 000 parts; larger ones than 16 MiB would need more memory."""
MAX_UPLOAD_KEY_LENGTH = 128
"""Characters of what identifies the content of an upload."""
TRANSIENT = (ConnectionFailed, TooManyRequests, Unavailable)
"""Errors after which the same call may succeed."""


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """A file or a folder. Folders of a cloud have no time."""

    name: str
    is_folder: bool
    size: int = 0
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class RemoteListing:
    """``file``: the path is one. ``next`` continues the listing, and is empty at its end; ``is_truncated``:
    the folder has more entries, which cannot be listed here."""

    file: RemoteEntry | None
    entries: list[RemoteEntry]
    next: str = ""
    is_truncated: bool = False


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A version of a file that can be read. ``key`` and ``version`` are those of its tree."""

    name: str
    size: int
    tree: RemoteTree
    key: str
    version: str

    def read_block(self, at: int, size: int) -> bytes:
        """A range of its bytes. Raises an error if another version has replaced it."""
        return self.tree.read_block(self, at, size)


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """How many objects a call has changed, and whether the whole change is made."""

    count: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is uploaded. ``key`` identifies its content, so that the upload can go on after it was
    interrupted; empty: it starts again."""

    path: str
    size: int
    key: str = ""
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.size > MAX_UPLOAD_BYTES:
            raise InvalidParameters(
                f"A file that is uploaded here has at most {MAX_UPLOAD_BYTES >> 30} GiB.",
                status=413,
                hint="Use pai copy.",
            )
        if len(self.key) > MAX_UPLOAD_KEY_LENGTH:
            raise InvalidParameters(f"The key of an upload has at most {MAX_UPLOAD_KEY_LENGTH} characters.")


@dataclass(slots=True)
class RemoteUpload:
    """A file that is being written: the ranges that have not arrived, each at most MAX_PART_BYTES long.

    ``make_folder`` is called before the first range is written: an upload that only begins, or is cancelled,
    creates nothing.
    """

    file: NewFile
    target: TargetFile
    missing: list[Range]
    make_folder: Callable[[], None] | None = None

    def put(self, offset: int, length: int, chunks: Callable[[], Chunks]) -> None:
        if self.make_folder is not None:
            self.make_folder()
            self.make_folder = None
        self.target.put(offset, length, chunks)

    def finish(self) -> None:
        try:
            self.target.finish(self.file.size)
        except Conflict:
            # The same upload would fail again.
            with contextlib.suppress(PaiError):
                self.target.abandon()
            raise Conflict(f"{self.file.path} already exists.") from None
        self.target.close()

    def end(self, *, is_kept: bool) -> None:
        """End it unfinished. ``is_kept``: its parts stay for the request that goes on with it."""
        if is_kept:
            self.target.close()
        else:
            self.target.abandon()


class RemoteTree(ABC):
    """Files of one storage. Every method runs in a thread of the storage and takes a bounded time."""

    @abstractmethod
    def list_folder(self, names: list[str], path: str, cursor: str) -> RemoteListing:
        """One page of a folder, or the file that the path is."""

    @abstractmethod
    def open(self, names: list[str], path: str) -> RemoteFile: ...

    @abstractmethod
    def read_block(self, file: RemoteFile, at: int, size: int) -> bytes: ...

    @abstractmethod
    def make_folder(self, names: list[str], path: str) -> None:
        """Make a folder; an existing one stays as it is."""

    @abstractmethod
    def delete(self, names: list[str], path: str) -> ChangeStep:
        """Delete a file, or some of what is in a folder, and the folder when it is empty."""

    @abstractmethod
    def move(
        self, names: list[str], path: str, target_names: list[str], target: str, *, resumes: bool
    ) -> ChangeStep:
        """Move a file, or some of what is in a folder. ``resumes``: earlier steps made the target."""

    @abstractmethod
    def open_upload(self, names: list[str], file: NewFile, key: str) -> RemoteUpload:
        """Open an upload, or resume it. ``key`` identifies the content and its user."""


def missing_entry(path: str) -> NotFound:
    return NotFound(f"{path}: there is no such file or folder.")


def missing_file(path: str) -> NotFound:
    return NotFound(f"{path}: there is no such file.")
