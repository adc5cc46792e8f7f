"""Pack format: many small files in one stream. A record is a fixed-size header, the name and the content; the
end record holds the number of records.

A stream without its end record is truncated. Names are UTF-8 (other bytes survive as surrogates), relative to
a folder both sides know, separated by ``/``.
"""

from __future__ import annotations

from struct import Struct

from paiprotocol.errors import InvalidParameters
from paiprotocol.transfer.hashing import ALGORITHMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = Struct(">BBHIQq16s")
"""Kind, index of the algorithm, length of the name, mode, size, mtime in ns, digest of the content."""
END, FILE, FOLDER, PROBLEM = 0, 1, 2, 3
MAX_PACKED_FILE_BYTES = 2 << 20
"""Files up to this size are packed; larger ones are transferred one by one, in parts."""
PACK_FULL_BYTES = 4 << 20
"""A pack is closed when its contents reach this size ..."""
MAX_PACK_FILES = 1000
"""... or when it holds this many files."""
MAX_PACK_BYTES = PACK_FULL_BYTES + MAX_PACKED_FILE_BYTES + MAX_PACK_FILES * (HEADER.size + 1024) + (1 << 16)
"""Upper bound of a pack's size: the reader may hold a whole pack in memory."""
NO_DIGEST = bytes(16)
FIRST_NS, LAST_NS = -(1 << 63), (1 << 63) - 1
"""Timestamps that fit into a header, up to the year 2262; a file system may have later ones."""


class PackRecord:
    """One file or folder of a pack. The ``content`` of a PROBLEM record is the error message."""

    __slots__ = ("algorithm", "content", "digest", "kind", "mode", "mtime_ns", "name")

    def __init__(
        self,
        kind: int,
        name: str,
        content: bytes | memoryview,
        *,
        mode: int = 0o644,
        mtime_ns: int = 0,
        digest: bytes = NO_DIGEST,
        algorithm: int = 0,
    ):
        self.kind = kind
        self.name = name
        self.content = content
        self.mode = mode
        self.mtime_ns = mtime_ns
        self.digest = digest
        self.algorithm = algorithm


def record_header(record: PackRecord) -> bytes:
    """Header and name of a record, without its content."""
    name = record.name.encode("utf-8", "surrogateescape")
    if len(name) > 0xFFFF:
        raise InvalidParameters(f"A path of {len(name)} bytes is too long to transfer (limit 65535).")
    return (
        HEADER.pack(
            record.kind,
            record.algorithm,
            len(name),
            record.mode,
            len(record.content),
            max(FIRST_NS, min(record.mtime_ns, LAST_NS)),
            record.digest,
        )
        + name
    )


def end_record(count: int) -> bytes:
    """The last record of a pack: the number of records before it."""
    return HEADER.pack(END, 0, 0, 0, count, 0, NO_DIGEST)


def read_pack(pack: bytes | memoryview) -> Iterator[PackRecord]:
    """The records of a whole pack. A truncated pack or a wrong record count is an error."""
    view = memoryview(pack)
    at, count, size = 0, 0, len(view)
    while True:
        if size - at < HEADER.size:
            raise truncated_pack()
        kind, algorithm, name_length, mode, length, mtime_ns, digest = HEADER.unpack_from(view, at)
        at += HEADER.size
        if kind == END:
            if length != count or at != size:
                raise truncated_pack()
            return
        if kind > PROBLEM or algorithm >= len(ALGORITHMS) or name_length + length > size - at:
            raise truncated_pack()
        name = str(view[at : at + name_length], "utf-8", "surrogateescape")
        at += name_length
        yield PackRecord(
            kind,
            name,
            view[at : at + length],
            mode=mode,
            mtime_ns=mtime_ns,
            digest=digest,
            algorithm=algorithm,
        )
        at += length
        count += 1


def truncated_pack() -> InvalidParameters:
    return InvalidParameters("A pack of files arrived truncated.", code="CutPackError")
