"""Copies between open files: an error names the file that has it."""

import os
import threading
from pathlib import Path

import pytest

from openpaisdk.storage.backends.descriptor_io import copy_hashed
from paiprotocol.errors import PaiError
from paiprotocol.transfer.hashing import BLAKE2B


def test_copy_names_the_source_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"content")
    # Descriptors that cannot be read from, or written to, fail as those of a broken disk do.
    unreadable = os.open(tmp_path / "source", os.O_WRONLY)
    readable = os.open(tmp_path / "source", os.O_RDONLY)
    target = os.open(tmp_path / "target", os.O_WRONLY | os.O_CREAT)
    unwritable = os.open(tmp_path / "target", os.O_RDONLY)
    lock = threading.Lock()
    try:
        with pytest.raises(PaiError, match=r"^data/source: bad file descriptor\.$"):
            copy_hashed(unreadable, target, 0, 7, BLAKE2B, lock, "data/source")
        with pytest.raises(OSError, match="Bad file descriptor"):
            copy_hashed(readable, unwritable, 0, 7, BLAKE2B, lock, "data/source")
        assert copy_hashed(readable, target, 0, 7, BLAKE2B, lock, "data/source")[0] == 7
    finally:
        for fd in (unreadable, readable, target, unwritable):
            os.close(fd)
