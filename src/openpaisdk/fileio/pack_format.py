"""Many small files as one stream: a head of fixed size, the name, the content; at last a record that counts.

A stream without its last record was cut. Names are UTF-8 (bytes that are none survive), relative to a folder
both sides know, with ``/`` between the parts.
"""

from __future__ import annotations

from struct import Struct

from openpaisdk.errors import InvalidParameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = Struct(">BBHIQq16s")
"""Kind, algorithm by place, length of the name, mode, size, mtime in ns, digest of the content."""
END, FILE, FOLDER, PROBLEM = 0, 1, 2, 3
SMALL = 2 << 20
"""Files up to this size are packed; larger ones travel alone, in parts."""
PACK = 4 << 20
"""A pack is closed once it holds this much."""
COUNT = 1000
"""... or this many files."""
LARGEST = PACK + SMALL + COUNT * (HEAD.size + 1024) + (1 << 16)
"""No pack is larger than this: whoever unpacks may hold one in memory."""
NO_DIGEST = bytes(16)
_FIRST_NS, _LAST_NS = -(1 << 63), (1 << 63) - 1
"""The times that have room in a head, up to the year 2262; a disk may know later ones."""


class PackRecord:
    """One file on its way. Of a PROBLEM, ``content`` says what happened."""

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


def head(record: PackRecord) -> bytes:
    """Everything of a record but its content."""
    name = record.name.encode("utf-8", "surrogateescape")
    if len(name) > 0xFFFF:
        raise InvalidParameters(f"A path of {len(name)} bytes is too long to travel.")
    return (
        HEAD.pack(
            record.kind,
            record.algorithm,
            len(name),
            record.mode,
            len(record.content),
            max(_FIRST_NS, min(record.mtime_ns, _LAST_NS)),
            record.digest,
        )
        + name
    )


def end(count: int) -> bytes:
    """The last record: how many came before it."""
    return HEAD.pack(END, 0, 0, 0, count, 0, NO_DIGEST)


def read_pack(pack: bytes | memoryview) -> Iterator[PackRecord]:
    """The records of a whole pack; what is cut or does not count up is refused."""
    view = memoryview(pack)
    at, count, size = 0, 0, len(view)
    while True:
        if size - at < HEAD.size:
            raise truncated_pack()
        kind, algorithm, name_length, mode, length, mtime_ns, digest = HEAD.unpack_from(view, at)
        at += HEAD.size
        if kind == END:
            if length != count or at != size:
                raise truncated_pack()
            return
        if kind > PROBLEM or name_length + length > size - at:
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
    return InvalidParameters("A pack of files was cut on its way.", code="CutPackError")
