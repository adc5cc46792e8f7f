"""A source bundle made of another one and what is new, so that only what changed has to travel.

A patch is a row of lines: ``copy OFFSET LENGTH`` takes a part of the other bundle, ``data LENGTH`` is
followed by so many bytes. Whoever makes one says what must come out; the caller checks it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from openpaisdk.errors import InvalidParameters

MEDIA_TYPE = "application/vnd.openpai.sources-patch"
_PIECE = 1 << 20
_LONGEST_LINE = 64


def apply(patch: Path, base: Path, made: Path, largest: int) -> str:
    """Write what a patch makes of ``base``, and give its SHA-256."""
    digest = hashlib.sha256()
    size = 0
    with patch.open("rb") as steps, base.open("rb") as old, made.open("wb") as new:
        while line := steps.readline(_LONGEST_LINE):
            source, length = _step(line, steps, old)
            size += length
            if size > largest:
                raise InvalidParameters(f"Sources may have {largest >> 20} MB at most.", status=413)
            while length:
                piece = source.read(min(length, _PIECE))
                if not piece:
                    raise InvalidParameters("The patch takes more than there is.")
                length -= len(piece)
                digest.update(piece)
                new.write(piece)
        new.flush()
        os.fsync(new.fileno())
    return digest.hexdigest()


def _step(line: bytes, steps: BinaryIO, old: BinaryIO) -> tuple[BinaryIO, int]:
    """Where the next bytes come from, and how many they are."""
    words = line.split()
    if line.endswith(b"\n") and all(word.isdigit() and len(word) < 16 for word in words[1:]):
        if len(words) == 3 and words[0] == b"copy":
            old.seek(int(words[1]))
            return old, int(words[2])
        if len(words) == 2 and words[0] == b"data":
            return steps, int(words[1])
    raise InvalidParameters(f"This is no patch: {line[:40]!r}.")
