"""Patches of source archives: a client uploads only the difference to an archive that the cluster has.

A patch is a sequence of instructions: ``copy OFFSET LENGTH`` copies a part of the base archive,
``data LENGTH`` is followed by that many bytes. The client announces the hash of the result; the caller checks
it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from paiprotocol.errors import InvalidParameters

MEDIA_TYPE = "application/vnd.openpai.sources-patch"
_CHUNK_BYTES = 1 << 20
_MAX_LINE_BYTES = 64


def apply(patch: Path, base: Path, result: Path, max_bytes: int) -> str:
    """Apply a patch to ``base``, write the ``result`` and return its SHA-256."""
    digest = hashlib.sha256()
    size = copied = 0
    base_size = base.stat().st_size
    with patch.open("rb") as instructions, base.open("rb") as old, result.open("wb") as new:
        while line := instructions.readline(_MAX_LINE_BYTES):
            source, length = _parse_instruction(line, instructions, old)
            size += length
            if source is old:
                # A difference uses each part of the base once. Without this bound a few bytes of patch
                # become an archive of the largest size.
                copied += length
                if copied > base_size:
                    raise InvalidParameters("A patch may copy at most as much as its base archive has.")
            if size > max_bytes:
                raise InvalidParameters(f"Sources may have {max_bytes >> 20} MB at most.", status=413)
            while length:
                chunk = source.read(min(length, _CHUNK_BYTES))
                if not chunk:
                    raise _beyond_the_end()
                length -= len(chunk)
                digest.update(chunk)
                new.write(chunk)
        new.flush()
        os.fsync(new.fileno())
    return digest.hexdigest()


def _parse_instruction(line: bytes, instructions: BinaryIO, old: BinaryIO) -> tuple[BinaryIO, int]:
    """Source and number of the next bytes."""
    fields = line.split()
    if line.endswith(b"\n") and all(field.isdigit() and len(field) < 16 for field in fields[1:]):
        if len(fields) == 3 and fields[0] == b"copy":
            offset, length = int(fields[1]), int(fields[2])
            # Before the seek: the file system may refuse one so far beyond the end.
            if offset + length > os.fstat(old.fileno()).st_size:
                raise _beyond_the_end()
            old.seek(offset)
            return old, length
        if len(fields) == 2 and fields[0] == b"data":
            return instructions, int(fields[1])
    raise InvalidParameters(f"Invalid instruction in the patch: {line[:40]!r}.")


def _beyond_the_end() -> InvalidParameters:
    return InvalidParameters("The patch reads beyond the end of the base archive or of itself.")
