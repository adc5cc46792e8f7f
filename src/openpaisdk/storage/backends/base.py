"""What every kind of storage can do, and a file on its way in or out of one.

A backend is asked from several threads at once. Paths are absolute, with ``/`` between their parts.
"""

from __future__ import annotations

import errno

from openpaisdk.errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    PaiError,
    Unauthorized,
    Unavailable,
    UsageError,
)
from openpaisdk.fileio.pack_format import SMALL
from openpaisdk.storage.file_info import join

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.storage.backends.hdfs_checksum import Checksum
    from openpaisdk.storage.file_info import DirectoryListing, FileInfo, FileStat

    Chunks = Iterator[bytes | memoryview]
    Range = tuple[int, int]
    """Offset and length."""

PART_BYTES = 8 << 20
"""What a large file is cut into: each part travels, is verified and is resumed by itself."""
MANY_PARTS = 16
"""Where there would be more, they are twice as long, and twice that: each costs a request, ..."""
LONGEST_PARTS = 32 << 20
"""... and what is interrupted begins them again."""
NEAR_PARTS = 64 << 20
"""The same where the other end is on this machine: soon brought again, and pauses between them tell."""
CHUNK = 1 << 20
"""What is read, hashed and written in one go: small enough to stay in the processor's cache meanwhile, long
enough that threads which write to the same file seldom wait for each other."""
WORKERS = 4
"""Threads that move files at the same time, so that a long way is never idle."""
MARK = ".pai-part"
"""How the names of unfinished copies end, on every kind of storage. They never travel themselves."""
CHANGED = "ChangedFileError"
FULL = "StorageFullError"


class SourceFile:
    """A file being read: its facts when it was opened, and ranges of its bytes."""

    size: int
    mtime_ns: int
    mode: int
    key: str
    """Names this very content: another size, time or place gives another key."""
    sums = False
    """Whether its storage may know what it contains (``checksum``), and its ranges are not proven anyway."""
    longest_parts = LONGEST_PARTS
    """How long the ranges may be that are asked for."""

    def chunks(self, offset: int, length: int) -> Chunks:
        """Its bytes. Each chunk is good until the next one is asked for: its memory is used again."""
        raise NotImplementedError

    def proves(self, algorithm: str) -> bool:
        """Whether it verifies what it reads with that hash, and gives it away afterwards (``proof``)."""
        return False

    def proof(self, offset: int, length: int) -> bytes:
        """The hash of a range whose chunks were read to their end."""
        raise NotImplementedError

    def checksum(self) -> Checksum | None:
        """What its storage says it contains; None where it says nothing."""
        return None

    def check(self) -> None:
        """Raise when the file is not the one any more that was opened."""

    def fileno(self) -> int:
        """A descriptor the kernel can copy from; -1 where there is none."""
        return -1

    def close(self) -> None:
        pass


class TargetFile:
    """A file being written beside its target, which stays as it is until ``finish``.

    ``size`` may be -1 when it is not known; then parts come in order.
    """

    size: int
    algorithm: str
    """What its parts are hashed with."""
    in_order = False
    """Whether the ranges must come one after the other."""
    sums = False
    """Whether its storage may know what has arrived (``checksum``), and ranges are not proven anyway."""

    def missing(self, longest: int = LONGEST_PARTS) -> list[Range]:
        """What has not arrived yet; an interrupted copy of the same content is taken up.

        ``longest`` is what its source says; not all heed it.
        """
        raise NotImplementedError

    def put(
        self, offset: int, length: int, chunks: Callable[[], Chunks], source: SourceFile | None = None
    ) -> None:
        """Write one range. ``chunks`` may be asked for again when the way was cut.

        ``source`` is what they come from: it may know their hash, or be a file the kernel can send.
        """
        raise NotImplementedError

    def fileno(self) -> int:
        return -1

    def mark(self, offset: int, length: int, digest: bytes) -> None:
        """A range was written through ``fileno``: this is the hash of what was written."""

    def checksum(self) -> Checksum | None:
        """What its storage says has arrived, once all of it has; None where it says nothing."""
        return None

    def checksum_type(self) -> str:
        """By which kind of checksum, as far as that is known before; empty where it is not."""
        return ""

    def finish(self, size: int) -> None:
        """Put it in the target's place, whole."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave what has arrived for the next try."""

    def abandon(self) -> None:
        """Remove what has arrived: it will not be continued."""
        self.close()


class Handover:
    """The way through the kernel to a cluster on this machine (see ``handover``)."""

    def open(self, path: str, shown: str) -> SourceFile:
        raise NotImplementedError

    def create(self, about: dict[str, object]) -> tuple[int, dict[str, object]]:
        """A descriptor to write to, and what the cluster has already."""
        raise NotImplementedError

    def mark(self, upload: str, offset: int, length: int, digest: bytes) -> None:
        raise NotImplementedError

    def finish(self, upload: str, said: dict[str, object]) -> None:
        raise NotImplementedError


class Backend:
    """A storage. What one kind cannot do better has its plain way here."""

    where = ""
    """What people call it: ``pai://team/home`` or this machine."""
    is_local = False
    supports_packs = False
    """Whether small files can travel packed (``send_pack``, ``fetch_pack``)."""
    names_are_hdfs = False
    workers = WORKERS
    """How many threads are worth their while."""

    def status(self, path: str) -> FileInfo | None:
        raise NotImplementedError

    def listing(self, path: str) -> list[FileInfo]:
        """What lies in a folder, by name."""
        raise NotImplementedError

    def is_empty(self, path: str) -> bool:
        """Whether a folder holds nothing."""
        return not self.listing(path)

    def walk(self, path: str) -> Iterator[DirectoryListing]:
        """All folders below one, in the order of ``entries.order``."""
        return walk_by_listing(self, path)

    def open(self, path: str, facts: FileStat | None = None) -> SourceFile:
        raise NotImplementedError

    def create(self, path: str, outgoing: FileStat, key: str, *, replacing: bool = True) -> TargetFile:
        """A file on its way in. Without ``replacing`` it is refused where another was there first."""
        raise NotImplementedError

    def is_special(self, path: str) -> bool:
        """Whether a device, a pipe or the like is there: what can be neither copied nor replaced."""
        return False

    def is_link(self, path: str) -> bool:
        """Whether it leads elsewhere."""
        return False

    def resolve(self, path: str) -> str:
        """Where a file that is written to a path comes to lie."""
        return path

    def canonical(self, path: str) -> str:
        """One name for one place: a storage is reached by several of its own, and by several addresses."""
        raise NotImplementedError

    def make_folder(self, path: str) -> None:
        raise NotImplementedError

    def delete(self, path: str) -> None:
        """A file, or a folder with all that is in it."""
        raise NotImplementedError

    def delete_all(self, base: str, names: list[str]) -> list[tuple[str, PaiError]]:
        """What has these names below a folder; what is gone already is fine, what was refused is told."""
        problems = []
        for name in names:
            try:
                self.delete(f"{base.rstrip('/')}/{name}")
            except (ConnectionFailed, Unauthorized, Unavailable):
                raise  # so it is for all of them
            except PaiError as e:
                if e.status != 404:
                    problems.append((name, e))
        return problems

    def rename(self, path: str, target: str) -> None:
        raise NotImplementedError

    def free_bytes(self, path: str) -> int | None:
        """How many bytes have room; None when nobody can say."""
        return None

    def send_pack(self, base: str, pack: bytes) -> list[tuple[str, PaiError]]:
        raise NotImplementedError

    def fetch_pack(self, base: str, names: list[str]) -> bytes:
        raise NotImplementedError

    def read_small(self, path: str, facts: FileStat) -> tuple[bytes, int, int]:
        """A small file as it was at one moment: content, time and mode.

        Where it is not the one any more that was planned with (``facts``), it is taken as it is now.
        """
        outgoing = self.open(path)
        try:
            if outgoing.size > SMALL:
                raise changed(self.shown(path), "grew")
            content = b"".join(map(bytes, outgoing.chunks(0, outgoing.size)))
            outgoing.check()
            return content, outgoing.mtime_ns, outgoing.mode
        finally:
            outgoing.close()

    def write_small(self, path: str, content: bytes | memoryview, mtime_ns: int, mode: int) -> None:
        """A small file, whole or not at all."""
        key = key_of(self.where, path, mtime_ns, len(content))
        incoming = self.create(path, (len(content), mtime_ns, mode), key)
        try:
            incoming.put(0, len(content), lambda: iter((content,)))
            incoming.finish(len(content))
        except BaseException:
            incoming.abandon()
            raise

    def shown(self, path: str) -> str:
        return self.where + path

    def close(self) -> None:
        pass


def walk_by_listing(backend: Backend, path: str) -> Iterator[DirectoryListing]:
    """One question a folder: for storages that know no better."""
    from openpaisdk.storage.file_info import DirectoryListing

    waiting = [""]
    while waiting:
        base = waiting.pop()
        files: dict[str, FileStat] = {}
        folders: list[str] = []
        for entry in backend.listing(f"{path.rstrip('/')}/{base}" if base else path):
            if entry.is_folder:
                folders.append(entry.name)
            else:
                files[entry.name] = (entry.size, entry.mtime_ns, entry.mode)
        folders.sort()
        yield DirectoryListing(base, files, folders)
        waiting += [join(base, name) for name in reversed(folders)]


def part_bytes_of(size: int, longest: int = LONGEST_PARTS) -> int:
    """How long the parts of a file are. The same in every run: those of another length are not taken up."""
    length = PART_BYTES
    while length < longest and size > length * MANY_PARTS:
        length *= 2
    return length


def part_name(name: str, key: str = "") -> str:
    """What an unfinished copy is called, beside its target: never longer than a name may be."""
    front = name[:200]
    if not name.isascii():
        front = name.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "ignore")
    return f".{front}.{key}{MARK}" if key else f".{front}{MARK}"


def parts(size: int, part_bytes: int = 0) -> list[Range]:
    """The ranges a file is cut into. An empty file has one, empty."""
    part_bytes = part_bytes or part_bytes_of(size)
    if size == 0:
        return [(0, 0)]
    return [(at, min(part_bytes, size - at)) for at in range(0, size, part_bytes)]


def key_of(*said: object) -> str:
    """A short name for this very content, the same in every run."""
    from openpaisdk.fileio.hashing import BLAKE2B, of_bytes

    return of_bytes("\0".join(map(str, said)).encode("utf-8", "surrogateescape"), BLAKE2B).hex()[:16]


def damaged(what: str) -> ConnectionFailed:
    return ConnectionFailed(f"{what} was damaged on its way; what was there is as it was.")


def changed(what: str, how: str = "changed") -> PaiError:
    return PaiError(
        f"{what} {how} while it was copied; the target is as it was.",
        code=CHANGED,
        hint="Copy it again when nobody writes to it.",
    )


def refused(what: str, e: OSError) -> PaiError:
    """What the disk said no with, as a sentence."""
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return PaiError(f"The disk is full: {what} cannot be written.", code=FULL, status=507)
    if isinstance(e, FileNotFoundError):
        return UsageError(f"{what}: there is no such file or folder.")
    if isinstance(e, PermissionError):
        return Forbidden(f"{what}: permission denied.")
    if isinstance(e, NotADirectoryError):
        return UsageError(f"{what}: a part of this path is a file and not a folder.")
    return PaiError(f"{what}: {(e.strerror or str(e)).lower()}.")


def is_there_already(what: str) -> Conflict:
    return Conflict(f"{what} is there already.")


def no_such(what: str) -> UsageError:
    return UsageError(f"{what}: there is no such file or folder.")
