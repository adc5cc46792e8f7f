"""Search in a log: every line with the text once, in both directions, across blocks and segments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paicluster.logs.reader import LogReader
from paicluster.logs.search import CONTEXT_BYTES, Hit, LogSearch


def _segments(folder: Path, parts: list[tuple[int, bytes]]) -> LogReader:
    for start, data in parts:
        (folder / f"all.{start}").write_bytes(data)
    return LogReader(folder, "all")


def _run(search: LogSearch, limit: int = 1000) -> list[Hit]:
    hits: list[Hit] = []
    while not search.is_complete and len(hits) < limit:
        hits += search.step(limit - len(hits))
    return hits


def _lines(text: bytes, wanted: bytes) -> list[tuple[int, bytes]]:
    """Offset and text of each line that contains what is wanted."""
    found, at = [], 0
    for line in text.split(b"\n"):
        if wanted.lower() in line.lower():
            found.append((at, line))
        at += len(line) + 1
    return found


@settings(deadline=None, max_examples=300)
@given(
    text=st.lists(st.sampled_from(b"aAb1\n"), max_size=60).map(bytes),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    wanted=st.lists(st.sampled_from(b"aB1"), min_size=1, max_size=3).map(bytes),
    block=st.integers(1, 9),
    limit=st.integers(1, 3),
    backward=st.booleans(),
)
def test_finds_each_line_once(
    tmp_path_factory: pytest.TempPathFactory,
    text: bytes,
    cuts: list[int],
    wanted: bytes,
    block: int,
    limit: int,
    backward: bool,
) -> None:
    at = sorted({0, *(cut % (len(text) + 1) for cut in cuts)})
    parts = [(start, text[start:end]) for start, end in zip(at, [*at[1:], len(text)], strict=True)]
    log = _segments(tmp_path_factory.mktemp("log"), parts)
    start = len(text) if backward else 0
    hits: list[Hit] = []
    is_complete = False
    while not is_complete:  # each time a new search, as a client's
        search = LogSearch(log, wanted, start, backward=backward, block_bytes=block)
        left = limit
        while not search.is_complete and (left or search.is_in_line):
            hits += (found := search.step(left))
            left -= len(found)
            assert left >= 0
        start, is_complete = search.position, search.is_complete
    expected = _lines(text, wanted)
    assert [(hit.line_offset, hit.line) for hit in hits] == (expected[::-1] if backward else expected)
    for hit in hits:
        assert text[hit.offset : hit.offset + len(wanted)].lower() == wanted.lower()


def test_search_starts_at_an_offset_in_either_direction(tmp_path: Path) -> None:
    text = b"needle 1\nhay\nneedle 2\nneedle 3\n"
    log = _segments(tmp_path, [(0, text)])
    second = text.index(b"needle 2")
    assert [hit.line for hit in _run(LogSearch(log, b"needle", second))] == [b"needle 2", b"needle 3"]
    before = LogSearch(log, b"needle", second, backward=True)
    assert [hit.line for hit in _run(before)] == [b"needle 1"]
    assert _run(LogSearch(log, b"needle", 10**15)) == []
    beyond = LogSearch(log, b"needle", 10**15, backward=True)
    assert [hit.offset for hit in _run(beyond, 1)] == [text.rindex(b"needle")]


def test_case_matters_only_on_request(tmp_path: Path) -> None:
    log = _segments(tmp_path, [(0, b"Error\nerror\n")])
    assert len(_run(LogSearch(log, b"ERROR", 0))) == 2
    assert [hit.line for hit in _run(LogSearch(log, b"error", 0, matches_case=True))] == [b"error"]


def test_dropped_parts_are_left_out(tmp_path: Path) -> None:
    log = _segments(tmp_path, [(100, b"a needle\nnee"), (200, b"dle\nneedle")])
    assert [hit.offset for hit in _run(LogSearch(log, b"needle", 0))] == [102, 204]
    assert [hit.offset for hit in _run(LogSearch(log, b"needle", 300, backward=True))] == [204, 102]


@pytest.mark.parametrize("backward", [False, True])
def test_of_a_long_line_only_what_surrounds_the_text_is_returned(tmp_path: Path, backward: bool) -> None:
    size = 5 << 20
    line = b"x" * size + b"needle" + b"y" * size
    log = _segments(tmp_path, [(0, b"first\n" + line + b"\nlast\n")])
    (hit,) = _run(LogSearch(log, b"needle", 2**40 if backward else 0, backward=backward))
    assert hit.offset == 6 + size
    assert hit.line == b"x" * CONTEXT_BYTES + b"needle" + b"y" * CONTEXT_BYTES
    assert hit.line_offset == hit.offset - CONTEXT_BYTES


def test_output_after_the_start_of_the_search_is_not_searched(tmp_path: Path) -> None:
    log = _segments(tmp_path, [(0, b"needle 1\n")])
    search = LogSearch(log, b"needle", 0)
    with (tmp_path / "all.0").open("ab") as f:
        f.write(b"needle 2\n")
    assert [hit.line for hit in _run(search)] == [b"needle 1"]
