"""The merged log holds both streams, whole, line by line."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pairuntime.supervisor import merged_log
from pairuntime.supervisor.log_segments import SegmentedLog

_Chunk = tuple[str, bytes]
# stdout has lower-case letters and stderr upper-case ones, so that a mixed line is detected.
_out = st.tuples(st.just("stdout"), st.lists(st.sampled_from(b"abc\n\r"), min_size=1, max_size=12).map(bytes))
_err = st.tuples(st.just("stderr"), st.lists(st.sampled_from(b"XYZ\n\r"), min_size=1, max_size=12).map(bytes))
_chunks = st.lists(_out | _err, max_size=30)


class _Kept(SegmentedLog):
    """A log in memory."""

    def __init__(self) -> None:
        super().__init__("", "", 0, 0)
        self.data = b""

    def write(self, data: bytes | memoryview) -> None:
        self.data += bytes(data)


def _merge(chunks: list[_Chunk], last: str = "stdout", **limits: int) -> bytes:
    log = _Kept()
    merged = merged_log.MergedLog(log, **limits)
    for stream, data in chunks:
        merged.feed(stream, data)
    merged.end("stderr" if last == "stdout" else "stdout")
    merged.end(last)
    return log.data


def _stream(chunks: list[_Chunk], name: str) -> bytes:
    return b"".join(data for stream, data in chunks if stream == name)


def _lines(data: bytes) -> list[bytes]:
    return [line for line in re.split(rb"[\n\r]", data) if line]


def _letters(data: bytes, name: str) -> bytes:
    return re.sub(rb"[^a-z]" if name == "stdout" else rb"[^A-Z]", b"", data)


@settings(deadline=None)
@given(_chunks, st.sampled_from(["stdout", "stderr"]))
def test_merged_log_has_every_line_intact_and_in_order(chunks: list[_Chunk], last: str) -> None:
    lines = _lines(_merge(chunks, last))
    for name, first in (("stdout", b"a"), ("stderr", b"X")):
        of_stream = [line for line in lines if (line[0] >= ord("a")) == (first == b"a")]
        assert of_stream == _lines(_stream(chunks, name))


@settings(deadline=None)
@given(_chunks, st.sampled_from(["stdout", "stderr"]))
def test_merged_log_loses_no_byte_and_adds_at_most_one_newline(chunks: list[_Chunk], last: str) -> None:
    merged = _merge(chunks, last)
    total = sum(len(data) for _, data in chunks)
    assert total <= len(merged) <= total + 1


@settings(deadline=None)
@given(chunks=_chunks, last=st.sampled_from(["stdout", "stderr"]))
def test_long_line_is_whole_while_the_other_stream_can_wait(chunks: list[_Chunk], last: str) -> None:
    lines = _lines(_merge(chunks, last, long_line_bytes=4))
    for name, small in (("stdout", True), ("stderr", False)):
        of_stream = [line for line in lines if (line[0] >= ord("a")) == small]
        assert of_stream == _lines(_stream(chunks, name))


@settings(deadline=None)
@given(chunks=_chunks, last=st.sampled_from(["stdout", "stderr"]))
def test_long_line_is_broken_when_the_other_stream_has_waited_too_long(
    chunks: list[_Chunk], last: str
) -> None:
    merged = _merge(chunks, last, long_line_bytes=4, max_waiting_bytes=16)
    for name in ("stdout", "stderr"):
        assert _letters(merged, name) == _letters(_stream(chunks, name), name)
    for line in _lines(merged):
        assert line.islower() or line.isupper()


def test_end_of_a_stream_does_not_break_a_long_line_of_the_other() -> None:
    long = b"x" * 100_000
    log = _Kept()
    merged = merged_log.MergedLog(log)
    merged.feed("stdout", long)
    merged.end("stderr")
    merged.feed("stdout", long + b"\n")
    merged.end("stdout")
    assert log.data == long + long + b"\n"


def test_unfinished_last_line_is_not_joined_with_the_other_stream() -> None:
    log = _Kept()
    merged = merged_log.MergedLog(log)
    merged.feed("stderr", b"no end")
    merged.end("stderr")
    merged.feed("stdout", b"a line\n")
    merged.end("stdout")
    assert log.data == b"no end\na line\n"


def test_a_single_stream_is_copied_byte_for_byte(tmp_path: Path) -> None:
    log = SegmentedLog(str(tmp_path), "all", 1 << 30, 1 << 30)
    merged = merged_log.MergedLog(log)
    data = bytes(range(256)) * 1000
    for at in range(0, len(data), 777):
        merged.feed("stdout", data[at : at + 777])
    merged.end("stdout")
    merged.end("stderr")
    assert (tmp_path / "all.0").read_bytes() == data
