"""Interface of storage backends, and of the files that are read from and written to them.

Backends are called by several threads at once. Paths are absolute, separated by ``/``.
"""

from __future__ import annotations

import errno
import os
from functools import partial

from openpaisdk.storage.file_info import join
from paiprotocol.errors import STORAGE_FULL as STORAGE_FULL
from paiprotocol.errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    PaiError,
    Unauthorized,
    Unavailable,
    UsageError,
)
from paiprotocol.transfer.pack_format import MAX_PACKED_FILE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from openpaisdk.storage.file_info import Checksum, DirectoryListing, FileInfo, FileStat

    Chunks = Iterator[bytes | memoryview]
    Range = tuple[int, int]
    """Offset and length."""

PART_BYTES = 8 << 20
"""Smallest part of a large file: each part is transferred, verified and resumed on its own."""
PARTS_BEFORE_DOUBLING = 16
"""Each part costs a request: a file of more parts gets parts of twice the size, as often as needed ..."""
MAX_PART_BYTES = 32 << 20
"""... up to this size: an interrupted part is sent again from its beginning."""
MAX_PARTS = 1 << 17
"""Parts that a cluster accepts of one file. For fewer than these the size doubles beyond any limit."""
MAX_LOCAL_PART_BYTES = 64 << 20
"""`MAX_PART_BYTES` of a cluster on this machine: repeating a part is cheap, pauses between parts are not."""
CHUNK_BYTES = 1 << 20
"""Bytes that are read, hashed and written in one step: few enough to stay in the processor's cache, enough
that threads writing to the same file seldom wait for each other."""
WORKERS = 4
"""Parallel transfer threads, so that a connection with a long round trip is never idle."""
PARTIAL_SUFFIX = ".pai-part"
"""Suffix of partial files, on every kind of storage. Partial files are never copied themselves."""
FILE_CHANGED = "ChangedFileError"
CHANGED_WHILE_COPIED = " while it was copied; the target is unchanged."
"""End of each message of ``changed_error``: what became of the target of the copy."""


class SourceFile:
    """A file being read: size, time and mode when it was opened, and ranges of its bytes."""

    size: int
    mtime_ns: int
    mode: int
    key: str
    """Content key: a different size, time or path gives a different key."""
    supports_checksum = False
    """Whether its storage may report a ``checksum`` and does not verify single ranges."""
    max_part_bytes = MAX_PART_BYTES
    """Upper bound of the ranges that are read at once."""

    def chunks(self, offset: int, length: int) -> Chunks:
        """Bytes of a range. A chunk is valid until the next one is requested: its memory is reused."""
        raise NotImplementedError

    def small_chunks(self) -> Chunks:
        """Bytes of the whole file, with less of it in memory at once where that takes more requests."""
        return self.chunks(0, self.size)

    def provides_digests(self, algorithm: str) -> bool:
        """Whether it verifies what it reads with that hash and returns it afterwards (``range_digest``)."""
        return False

    def range_digest(self, offset: int, length: int) -> bytes:
        """Hash of a range whose chunks were read to the end."""
        raise NotImplementedError

    def checksum(self) -> Checksum | None:
        """Checksum reported by the storage; None where it reports none."""
        return None

    def check(self) -> None:
        """Raise if the file has changed since it was opened."""

    def fileno(self) -> int:
        """File descriptor that can be read from; -1 where there is none."""
        return -1

    def close(self) -> None:
        pass


class TargetFile:
    """A file being written as a partial file; the target is unchanged until ``finish``.

    ``size`` is -1 when it is unknown; then ranges come in order.
    """

    size: int
    algorithm: str
    """Hash algorithm of its ranges."""
    in_order = False
    """Whether ranges must be written in order."""
    supports_checksum = False
    """Whether its storage may report a ``checksum`` and does not verify single ranges."""

    def missing_ranges(self, max_bytes: int = MAX_PART_BYTES) -> list[Range]:
        """Ranges still to be written; an interrupted copy of the same content is resumed.

        ``max_bytes`` is the source's bound for a range; not every backend uses it.
        """
        raise NotImplementedError

    def put(
        self, offset: int, length: int, chunks: Callable[[], Chunks], source: SourceFile | None = None
    ) -> None:
        """Write one range. ``chunks`` is called again when the connection was lost.

        ``source`` is the file they come from: it may know their hash, or have a descriptor for sendfile.
        """
        raise NotImplementedError

    def fileno(self) -> int:
        return -1

    def mark_written(self, offset: int, length: int, digest: bytes) -> None:
        """Record that a range was written through ``fileno``, with the hash of the bytes written."""

    def checksum(self) -> Checksum | None:
        """Checksum of the complete partial file reported by the storage; None where it reports none."""
        return None

    def checksum_type(self) -> str:
        """Algorithm of the later ``checksum``; empty where it is not known in advance."""
        return ""

    def finish(self, size: int) -> None:
        """Replace the target by the complete file, atomically."""
        raise NotImplementedError

    def close(self) -> None:
        """Close it, and keep the partial file for the next attempt."""

    def abandon(self) -> None:
        """Delete the partial file: it will not be resumed."""
        self.close()


class DescriptorChannel:
    """Passing of open files by a cluster on the same machine (implemented in ``fd_passing``)."""

    def open(self, path: str, shown: str) -> SourceFile:
        raise NotImplementedError

    def create(self, upload_request: dict[str, object]) -> tuple[int, dict[str, object]]:
        """A descriptor to write to, and the state of the upload."""
        raise NotImplementedError

    def mark_written(self, upload: str, offset: int, length: int, digest: bytes) -> None:
        raise NotImplementedError

    def finish(self, upload: str, completion: dict[str, object]) -> None:
        raise NotImplementedError


class Backend:
    """Base class of storage backends, with default implementations where a simple one exists."""

    url = ""
    """Prefix of its paths in messages: ``pai://team/home``; empty for paths of this machine."""
    is_local = False
    supports_packs = False
    """Whether small files can be transferred in packs (``send_pack``, ``fetch_pack``)."""
    keeps_times = True
    """Whether a file keeps the time of its source. Otherwise it has the time at which it was written."""
    has_implicit_folders = False
    """Whether writing a file is enough to have its folders."""
    own_folder = ""
    """Folder in which the user may always write; empty if there is none, or it is not known."""
    workers = WORKERS
    """Useful number of transfer threads."""
    default_streams = 4
    """Files that are streamed at a time, unless the user says how many: some storages need much memory."""

    def status(self, path: str) -> FileInfo | None:
        raise NotImplementedError

    def list_folder(self, path: str) -> list[FileInfo]:
        """Entries of a folder, sorted by name."""
        raise NotImplementedError

    def is_empty(self, path: str) -> bool:
        """Whether a folder has no entries."""
        return not self.list_folder(path)

    def list_pages(self, path: str) -> Iterator[list[FileInfo]]:
        """Entries of a folder in any order, some at a time where the storage lists them so."""
        yield self.list_folder(path)

    def walk(self, path: str, max_files: int = 0) -> Iterator[DirectoryListing]:
        """All folders below one, in the order of ``file_info.walk_order``.

        With ``max_files``, a folder of more files comes in several listings, one after the other: no more are
        in memory. The last one has the names of its folders.
        """
        return walk_by_listing(self, path, max_files)

    def open(self, path: str, file_stat: FileStat | None = None) -> SourceFile:
        raise NotImplementedError

    def create(self, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True) -> TargetFile:
        """Start writing a file. Without ``overwrite`` an existing target is an error."""
        raise NotImplementedError

    def invalid_name_reason(self, path: str) -> str:
        """Reason why this storage rejects a path; empty if it accepts it."""
        return ""

    def is_special(self, path: str) -> bool:
        """Whether it is a device, a pipe or the like, which can be neither copied nor replaced."""
        return False

    def is_link(self, path: str) -> bool:
        """Whether it is a symbolic link."""
        return False

    def resolve(self, path: str) -> str:
        """The path a file written to this path ends up at, links resolved."""
        return path

    def canonical(self, path: str) -> str:
        """One name per file: a storage may have several names and several addresses."""
        raise NotImplementedError

    def make_folder(self, path: str) -> None:
        raise NotImplementedError

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its contents."""
        raise NotImplementedError

    def delete_all(self, base: str, names: list[str]) -> list[tuple[str, PaiError]]:
        """Delete several names below a folder. Missing ones are ignored, other errors are returned."""
        problems = []
        for name in names:
            try:
                self.delete(f"{base.rstrip('/')}/{name}")
            except (ConnectionFailed, Unauthorized, Unavailable):
                raise  # the same for all names
            except PaiError as e:
                if e.status != 404:
                    problems.append((name, e))
        return problems

    def rename(self, path: str, target: str) -> None:
        raise NotImplementedError

    def free_bytes(self, path: str) -> int | None:
        """Free space in bytes; None when unknown."""
        return None

    def send_pack(self, base: str, pack: bytes) -> list[tuple[str, PaiError]]:
        raise NotImplementedError

    def fetch_pack(self, base: str, names: list[str]) -> bytes:
        raise NotImplementedError

    def read_small(self, path: str, file_stat: FileStat) -> tuple[bytes, int, int]:
        """Consistent content, time and mode of a small file.

        A file that differs from the plan (``file_stat``) is read as it is now.
        """
        source = self.open(path)
        try:
            if source.size > MAX_PACKED_FILE_BYTES:
                raise changed_error(self.display_path(path), "grew")
            content = b"".join(map(bytes, source.chunks(0, source.size)))
            source.check()
            return content, source.mtime_ns, source.mode
        finally:
            source.close()

    def read_listed(self, base: str, files: Sequence[tuple[str, FileStat]]) -> list[bytes | None]:
        """Contents of small files below a folder; None for a file that ``read_small`` must read.

        For backends that read many faster than one after the other, those that are as they were listed.
        """
        return [None] * len(files)

    def write_bytes(
        self, path: str, content: bytes | memoryview, mtime_ns: int, mode: int, *, overwrite: bool = True
    ) -> None:
        """Write a file whose content is in memory, atomically.

        An interrupted write is not resumed: its name would not tell whether the content is the same.
        """
        target_file = self.create(
            path, (len(content), mtime_ns, mode), os.urandom(8).hex(), overwrite=overwrite
        )
        try:
            for offset, length in target_file.missing_ranges():
                part = memoryview(content)[offset : offset + length]
                target_file.put(offset, length, partial(iter, (part,)))
            target_file.finish(len(content))
        except BaseException:
            target_file.abandon()
            raise

    def display_path(self, path: str) -> str:
        return self.url + path

    def close(self) -> None:
        pass


def walk_by_listing(backend: Backend, path: str, max_files: int = 0) -> Iterator[DirectoryListing]:
    """Walk that lists one folder after the other, for backends without a recursive listing."""
    from openpaisdk.storage.file_info import folder_listings
    from paiprotocol.transfer.sorted_files import SortedFiles

    pending = [""]
    while pending:
        base = pending.pop()
        files = SortedFiles(max_files)
        names: set[str] = set()
        for page in backend.list_pages(f"{path.rstrip('/')}/{base}" if base else path):
            for entry in page:
                if entry.is_folder:
                    names.add(entry.name)
                else:
                    files.add(entry.name, (entry.size, entry.mtime_ns, entry.mode))
        folders = sorted(names)
        for listing in folder_listings(base, files, folders):
            for name in folders:
                listing.files.pop(name, None)  # an object store may have both: the folder counts
            yield listing
        pending += [join(base, name) for name in reversed(folders)]


def part_size(size: int, max_bytes: int = MAX_PART_BYTES) -> int:
    """Size of a file's parts. The same in every run: parts of another size are not resumed."""
    length = PART_BYTES
    while (length < max_bytes and size > length * PARTS_BEFORE_DOUBLING) or size > length * MAX_PARTS:
        length *= 2
    return length


def partial_name(name: str, key: str = "") -> str:
    """Name of a partial file beside its target; never longer than file systems allow."""
    prefix = name[:200]
    if not name.isascii():
        prefix = name.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "ignore")
    return f".{prefix}.{key}{PARTIAL_SUFFIX}" if key else f".{prefix}{PARTIAL_SUFFIX}"


def split_ranges(size: int, part_bytes: int = 0) -> list[Range]:
    """The ranges of a file's parts. An empty file has one empty range."""
    part_bytes = part_bytes or part_size(size)
    if size == 0:
        return [(0, 0)]
    return [(at, min(part_bytes, size - at)) for at in range(0, size, part_bytes)]


def content_key(*values: object) -> str:
    """Short hash of the values that identify a content, the same in every run."""
    from paiprotocol.transfer.hashing import BLAKE2B, hash_bytes

    return hash_bytes("\0".join(map(str, values)).encode("utf-8", "surrogateescape"), BLAKE2B).hex()[:16]


def damaged_error(what: str) -> ConnectionFailed:
    return ConnectionFailed(f"{what} was damaged during the transfer; the target is unchanged.")


def changed_error(what: str, how: str = "changed") -> PaiError:
    return PaiError(
        f"{what} {how}{CHANGED_WHILE_COPIED}",
        code=FILE_CHANGED,
        hint="Copy it again when no program writes to it.",
    )


def error_from_oserror(what: str, e: OSError) -> PaiError:
    """An OSError as a PaiError with a sentence for the user."""
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return PaiError(f"The disk is full: {what} cannot be written.", code=STORAGE_FULL, status=507)
    if isinstance(e, FileNotFoundError):
        return UsageError(f"{what}: there is no such file or folder.")
    if isinstance(e, PermissionError):
        return Forbidden(f"{what}: permission denied.")
    if isinstance(e, NotADirectoryError):
        return UsageError(f"{what}: a part of this path is a file and not a folder.")
    return PaiError(f"{what}: {(e.strerror or str(e)).lower()}.")


def is_denied(error: BaseException) -> bool:
    """Whether a storage denied it: HDFS and ours name the user, this machine does not."""
    return isinstance(error, PaiError) and "Permission denied" in error.message and "user=" in error.message


class WriteAccess:
    """``with WriteAccess(backend, path):`` adds the user's own folder to the error of a denied write."""

    def __init__(self, backend: Backend, path: str):
        self._backend = backend
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        backend = self._backend
        if not isinstance(error, PaiError) or not is_denied(error) or not backend.own_folder:
            return
        message = error.message
        if backend.url not in message:
            message = f"{backend.display_path(self._path)}: permission denied ({message.removesuffix('.')})."
        own = f"Your own folder is {backend.display_path(backend.own_folder)}."
        raise Forbidden(message, hint=f"{error.hint} {own}".lstrip()) from None


def already_exists_error(what: str) -> Conflict:
    return Conflict(f"{what} already exists.")


def not_found_error(what: str) -> UsageError:
    hint = ""
    if "://" in what and any(sign in what for sign in "*?"):  # a shell expands only paths of its machine
        hint = "On a storage * and ? are not expanded: name each file, or the folder that has them."
    return UsageError(f"{what}: there is no such file or folder.", hint=hint)
