"""A log in segments: offsets are logical, the oldest goes first, and no trouble of a log ends its task."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paicluster.logs.reader import LogReader
from pairuntime.supervisor.log_segments import SegmentedLog


def _everything(folder: Path, stream: str = "stdout") -> list[tuple[int, bytes]]:
    reader, offset = LogReader(folder, stream), 0
    found: list[tuple[int, bytes]] = []
    while True:
        chunk = reader.read(offset, 1 << 20)
        if not chunk.data:
            return found
        found.append((chunk.offset, chunk.data))
        offset = chunk.end


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=30))
def test_log_is_read_back_across_segments(
    tmp_path_factory: pytest.TempPathFactory, writes: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = SegmentedLog(str(folder), "stdout", 1 << 30, 16)
    for data in writes:
        log.write(data)
    assert b"".join(data for _, data in _everything(folder)) == b"".join(writes)
    assert log.offset == sum(map(len, writes))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_oldest_segment_is_dropped_at_the_limit_and_offsets_stay(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = SegmentedLog(str(folder), "stdout", limit=64, segment=16)
    whole = b""
    for number, size in enumerate(sizes):
        data = bytes([number % 251]) * size
        whole += data
        log.write(data)
    kept = _everything(folder)
    assert sum(len(data) for _, data in kept) <= 64 + 16
    assert all(whole[offset : offset + len(data)] == data for offset, data in kept)
    assert kept[-1][0] + len(kept[-1][1]) == len(whole) == log.offset


def test_no_segment_is_created_before_the_first_byte(tmp_path: Path) -> None:
    SegmentedLog(str(tmp_path), "stdout", 100, 10).write(b"")
    assert list(tmp_path.iterdir()) == []


def test_dropped_bytes_leave_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SegmentedLog(str(tmp_path), "stdout", 1000, 1000)
    log.write(b"before")
    real = os.write

    def no_room(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", no_room)
    log.write(b"lost")
    monkeypatch.setattr(os, "write", real)
    log.write(b"after")
    assert _everything(tmp_path) == [(0, b"before"), (10, b"after")]
    assert log.dropped == 4


@pytest.mark.parametrize("number", [errno.EIO, errno.EFBIG, errno.EROFS])
def test_disk_errors_drop_log_bytes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = SegmentedLog(str(tmp_path), "stdout", 1000, 1000)

    def fails(fd: int, data: bytes = b"") -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fails)
        patch.setattr(os, "fdatasync", fails)
        log.write(b"lost")
        log.sync()
    log.write(b"kept")
    assert _everything(tmp_path) == [(4, b"kept")]


def test_deleted_folder_drops_log_bytes_only(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    log = SegmentedLog(str(folder), "stdout", 1000, 10)
    log.write(b"nowhere to go")
    assert log.dropped == 13


def test_full_disk_drops_the_oldest_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SegmentedLog(str(tmp_path), "stdout", 1000, 10)
    log.write(b"a" * 10 + b"b" * 10 + b"c")
    real = os.write

    def room_for_twenty(fd: int, data: bytes) -> int:
        if sum(path.stat().st_size for path in tmp_path.iterdir()) + len(data) > 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", room_for_twenty)
    log.write(b"d" * 9)
    assert _everything(tmp_path) == [(10, b"b" * 10), (20, b"c" + b"d" * 9)]
    assert log.dropped == 0


def test_segment_left_by_a_machine_crash_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "stdout.0").write_bytes(b"from an earlier life")
    SegmentedLog(str(tmp_path), "stdout", 1000, 1000).write(b"now")
    assert _everything(tmp_path) == [(0, b"now")]
