"""Tar archives of untrusted origin: the one reader for shards, sources and backups.

tarfile reads a header as a whole, whatever size it claims: a name of 2 GB takes more than that in memory.
Damaged headers raise errors of many types.
"""

import struct
import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Iterator

MAX_HEADER_BYTES = 64 << 10
"""All headers of one member: its own and its extended ones, which hold long names. The longest path of a file
system has 4 KiB."""
# Global headers apply to all later members, each of which gets a copy.
_MAX_GLOBAL_RECORDS = 100
_NEGATIVE_SIZE = "a member has a negative size"
# What tarfile raises for damaged headers, besides its own errors.
_DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)


class _ArchiveMember(tarfile.TarInfo):
    def _block(self, count: "int") -> "int":
        # Newer versions of Python take a header with such a size for the end of the archive.
        if count < 0:
            raise tarfile.ReadError(_NEGATIVE_SIZE)
        return int(super()._block(count))  # type: ignore[misc]


class BoundedTarFile(tarfile.TarFile):
    """An archive whose headers are read within bounds. Whatever is wrong with one is a ``TarError``."""

    tarinfo = _ArchiveMember

    def __init__(
        self,
        name: "Any" = None,
        mode: "Any" = "r",
        fileobj: "Any" = None,
        *,
        max_header_bytes: "int" = MAX_HEADER_BYTES,
        max_members: "int | None" = None,
        **options: "Any",
    ) -> "None":
        """``fileobj`` is an open file; ``max_members`` are read before the archive is rejected."""
        if fileobj is None:
            raise ValueError("an archive is read from an open file")
        self._headers = _HeaderFile(fileobj, max_header_bytes)
        self._max_members = max_members
        self._count = 0
        super().__init__(name=name, mode=mode, fileobj=self._headers, **options)  # type: ignore[arg-type]

    def next(self) -> "tarfile.TarInfo | None":
        if getattr(self, "firstmember", None) is not None:
            return super().next()  # read by the constructor
        self._headers.begin_header()
        try:
            member = super().next()
        except tarfile.TarError:
            raise
        except _DAMAGE as e:
            raise tarfile.ReadError("a header is damaged (%s)" % (str(e) or type(e).__name__)) from None
        finally:
            self._headers.end_header()
        if member is None:
            # tarfile takes any header that it cannot read for the end, but for the first.
            if self._headers.last_read.strip(b"\0"):
                raise tarfile.ReadError("a header is damaged")
            return None
        if member.size < 0:
            raise tarfile.ReadError(_NEGATIVE_SIZE)
        self._count += 1
        if self._max_members is not None and self._count > self._max_members:
            raise tarfile.ReadError("it has more than %d members" % self._max_members)
        if len(self.pax_headers) > _MAX_GLOBAL_RECORDS:
            raise tarfile.ReadError("it has more than %d global records" % _MAX_GLOBAL_RECORDS)
        return member

    def one_by_one(self) -> "Iterator[tarfile.TarInfo]":
        """The members, none of which is kept: an archive may have millions."""
        while True:
            member = self.next()
            if member is None:
                return
            yield member
            self.members.clear()  # type: ignore[attr-defined]


class _HeaderFile:
    """File that counts what is read of it while a header is read."""

    def __init__(self, file: "IO[bytes]", limit: "int") -> "None":
        self._file = file
        self._limit = limit
        self._left = None  # type: int | None
        self.last_read = b""

    def begin_header(self) -> "None":
        self._left = self._limit
        self.last_read = b""

    def end_header(self) -> "None":
        self._left = None

    def read(self, size: "int" = -1) -> "bytes":
        if self._left is not None:
            if not 0 <= size <= self._left:
                raise tarfile.ReadError("the headers of a member have more than %d KiB" % (self._limit >> 10))
            self._left -= size
            self.last_read = self._file.read(size)
            return self.last_read
        return self._file.read(size)

    def seek(self, offset: "int") -> "int":
        return self._file.seek(offset)

    def tell(self) -> "int":
        return self._file.tell()

    def close(self) -> "None":
        self._file.close()
