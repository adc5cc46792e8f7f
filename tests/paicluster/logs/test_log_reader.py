"""Log reader: one byte sequence over segments, with gaps where parts were dropped."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paicluster.logs.reader import Chunk, LogReader
from pairuntime.supervisor.log_segments import SegmentedLog


def _segments(folder: Path, parts: list[tuple[int, bytes]]) -> LogReader:
    for start, data in parts:
        (folder / f"stdout.{start}").write_bytes(data)
    return LogReader(folder, "stdout")


def _cut(text: bytes, cuts: list[int]) -> list[tuple[int, bytes]]:
    at = sorted({0, *(cut % (len(text) + 1) for cut in cuts)})
    ends = [*at[1:], len(text)]
    return [(start, text[start:end]) for start, end in zip(at, ends, strict=True)]


_TEXT = st.lists(st.sampled_from(b"ab\n"), max_size=60).map(bytes)
_CUTS = st.lists(st.integers(0, 60), max_size=5)


@settings(deadline=None)
@given(_TEXT, _CUTS, st.integers(0, 60), st.integers(1, 20))
def test_reading_from_any_offset_yields_the_rest(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, cuts: list[int], offset: int, limit: int
) -> None:
    log = _segments(tmp_path_factory.mktemp("log"), _cut(text, cuts))
    assert log.size() == len(text)
    offset = min(offset, len(text))
    read = b""
    while (chunk := log.read(offset + len(read), limit)).data:
        assert chunk.offset == offset + len(read)
        assert len(chunk.data) <= limit
        read += chunk.data
    assert read == text[offset:]


@settings(deadline=None)
@given(_TEXT, _CUTS, st.integers(0, 8), st.integers(1, 9))
def test_tail_works_across_segments_and_blocks(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, cuts: list[int], lines: int, block: int
) -> None:
    log = _segments(tmp_path_factory.mktemp("log"), _cut(text, cuts))
    offset = log.tail(lines, block_bytes=block)
    whole = text.splitlines(keepends=True)
    assert text[offset:] == b"".join(whole[max(0, len(whole) - lines) :])


@settings(deadline=None)
@given(_TEXT, _CUTS, st.integers(0, 70))
def test_last_bytes_are_read_across_segments(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, cuts: list[int], size: int
) -> None:
    log = _segments(tmp_path_factory.mktemp("log"), _cut(text, cuts))
    assert log.last(size) == (text[-size:] if size else b"")


def test_read_continues_after_a_dropped_beginning(tmp_path: Path) -> None:
    log = _segments(tmp_path, [(100, b"kept\n"), (105, b"more\n")])
    chunk = log.read(0, 1000)
    assert (chunk.offset, chunk.data, chunk.end) == (100, b"kept\n", 105)
    assert log.read(chunk.end, 1000).data == b"more\n"
    assert log.size() == 110
    assert log.tail(10) == 100
    assert log.tail(1) == 105
    assert log.last(7) == b"t\nmore\n"


def test_reader_sees_segments_that_come_and_go_between_its_reads(tmp_path: Path) -> None:
    log = LogReader(tmp_path, "all")
    assert log.read(0, 100) == Chunk(0, b"")
    (tmp_path / "all.0").write_bytes(b"first")
    assert log.read(0, 100) == Chunk(0, b"first")
    (tmp_path / "all.5").write_bytes(b"second")
    assert log.read(5, 100) == Chunk(5, b"second")
    (tmp_path / "all.0").unlink()
    assert log.read(0, 100) == Chunk(5, b"second")
    (tmp_path / "all.5").unlink()
    (tmp_path / "all.11").write_bytes(b"third")
    assert log.read(7, 100) == Chunk(11, b"third")


def test_gap_shows_as_a_jump_of_the_offset(tmp_path: Path) -> None:
    log = _segments(tmp_path, [(0, b"before\n"), (50, b"after\n")])
    first = log.read(3, 1000)
    assert (first.offset, first.data) == (3, b"ore\n")
    assert log.read(first.end, 1000).offset == 50
    assert log.read(20, 1000).offset == 50
    assert log.tail(2) == 0
    assert log.read(log.tail(1), 1000).offset == 50
    assert log.last(1000) == b"before\nafter\n"


def test_empty_segment_is_skipped(tmp_path: Path) -> None:
    log = _segments(tmp_path, [(0, b"one"), (10, b""), (20, b"two")])
    assert log.read(3, 10).offset == 20
    assert log.size() == 23


def test_missing_log_is_empty(tmp_path: Path) -> None:
    for log in (LogReader(tmp_path, "stdout"), LogReader(tmp_path / "nowhere", "all")):
        assert log.size() == 0
        assert log.read(7, 10).data == b""
        assert log.tail(3) == 0
        assert log.last(10) == b""


def test_other_files_are_not_segments(tmp_path: Path) -> None:
    for name in ("stdout.old", "stdout", "stdout.5.gz", "stderr.0", "claim"):
        (tmp_path / name).write_bytes(b"not this")
    assert LogReader(tmp_path, "stdout").size() == 0


@pytest.mark.slow
def test_offsets_never_go_back_while_old_segments_are_dropped(tmp_path: Path) -> None:
    total = 400_000

    def write() -> None:
        log = SegmentedLog(str(tmp_path), "stdout", limit=8192, segment=1024)
        for number in range(total // 8):
            log.write(b"%07d\n" % number)

    writer = threading.Thread(target=write)
    writer.start()
    reader, offset = LogReader(tmp_path, "stdout"), 0
    while offset < total:
        chunk = reader.read(offset, 3000)
        assert chunk.offset >= offset
        for at in range(-chunk.offset % 8, len(chunk.data) - 7, 8):
            assert int(chunk.data[at : at + 7]) == (chunk.offset + at) // 8
        offset = chunk.end
    writer.join()
    assert reader.read(total, 10).data == b""


def test_links_pipes_and_folders_are_not_segments(tmp_path: Path) -> None:
    """The folder may belong to another account: links could expose other files, pipes could block."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"not for you")
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "stdout.0").write_bytes(b"said")
    (folder / "stdout.4").symlink_to(secret)
    os.mkfifo(folder / "stdout.5")
    (folder / "stdout.6").mkdir()
    reader = LogReader(folder, "stdout")
    assert reader.read(0, 100).data == b"said"
    assert reader.read(4, 100).data == b""
    assert (reader.size(), reader.last(100)) == (4, b"said")


def test_names_with_non_ascii_digits_are_not_segments(tmp_path: Path) -> None:
    (tmp_path / "all.0").write_text("log\n")
    for name in ("all.²", "all.٣", "all.-1", "all.1e3", "all."):
        (tmp_path / name).write_text("no log\n")
    reader = LogReader(tmp_path, "all")
    assert (reader.size(), reader.read(0, 100).data) == (4, b"log\n")


def test_tail_has_at_most_so_many_bytes(tmp_path: Path) -> None:
    log = _segments(tmp_path, [(0, b"first\nsecond\nthird\n")])
    assert log.tail(3, 15) == 6, "whole lines, where there are some"
    assert log.tail(3, 1000) == 0
    assert log.tail(1, 15) == 13
    assert log.tail(3, 4) == 15, "of a longer line its end"
