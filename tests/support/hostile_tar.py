"""Tar archives as no program writes them."""

from __future__ import annotations

import tarfile
from pathlib import Path

MEMBER_KINDS = [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]
"""Members that are headers of the next one."""


def block(name: bytes, kind: bytes, size: int) -> bytes:
    """Header of a member; of any size, also one that is negative or too large for the field."""
    length = size & ((1 << 88) - 1)
    field = (b"\xff" if size < 0 else b"\x80") + length.to_bytes(11, "big")
    if 0 <= size < 1 << 33:
        field = b"%011o\0" % size
    header = bytearray(tarfile.TarInfo("").tobuf(tarfile.GNU_FORMAT))
    header[:100] = name[:100].ljust(100, b"\0")
    header[124:136] = field
    header[156:157] = kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def pax_record(key: bytes, value: bytes) -> bytes:
    content = b" " + key + b"=" + value + b"\n"
    length = len(content)
    while len(str(length)) + len(content) != length:
        length = len(str(length)) + len(content)
    return str(length).encode() + content


def write_endless_header(path: Path, kind: bytes, size: int = 2 << 30) -> Path:
    """An archive whose first header has so many bytes; the file is a hole and takes no space."""
    with path.open("wb") as file:
        file.write(block(b"x", kind, size))
        file.truncate(512 + size)
        file.seek(0, 2)
        file.write(block(b"a", tarfile.REGTYPE, 0) + bytes(1024))
    return path
