"""Preallocation of file ranges, where the file system supports it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from paiprotocol.transfer.ranges import MAX_WRITE_BYTES, reserve, write_at
from support.small_disk import mounted


def test_range_is_preallocated_then_written(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=8m") as disk, (disk / "f").open("w+b", buffering=0) as file:
        reserve(file.fileno(), MAX_WRITE_BYTES, 2 * MAX_WRITE_BYTES)
        found = os.fstat(file.fileno())
        assert found.st_blocks * 512 >= 2 * MAX_WRITE_BYTES
        write_at(file.fileno(), b"x" * MAX_WRITE_BYTES, 2 * MAX_WRITE_BYTES)
        assert (
            os.pread(file.fileno(), 3 * MAX_WRITE_BYTES, 0)
            == bytes(2 * MAX_WRITE_BYTES) + b"x" * MAX_WRITE_BYTES
        )


def test_preallocation_on_a_full_disk_fails_at_once(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=4m") as disk:
        old = disk / "f"
        old.write_bytes(b"old")
        with old.open("r+b", buffering=0) as file, pytest.raises(OSError) as refused:
            reserve(file.fileno(), 0, 16 * MAX_WRITE_BYTES)
        assert refused.value.errno == errno.ENOSPC
        assert old.read_bytes() == b"old"


def test_preallocation_is_optional() -> None:
    reading, writing = os.pipe()
    try:
        reserve(writing, 0, MAX_WRITE_BYTES)
        os.write(writing, b"x")
        assert os.read(reading, 9) == b"x"
    finally:
        os.close(reading)
        os.close(writing)


def test_small_ranges_are_not_preallocated(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        reserve(file.fileno(), 0, MAX_WRITE_BYTES - 1)
        assert os.fstat(file.fileno()).st_size == 0
