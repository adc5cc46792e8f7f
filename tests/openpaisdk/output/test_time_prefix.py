"""Lines of a log after the times at which they were written."""

from __future__ import annotations

import io
import time

import pytest

from openpaisdk.output.time_prefix import TimePrefixer

FIRST_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


class _Timed:
    def __init__(self) -> None:
        self.missing = 0
        self._out = io.BytesIO()
        self.stream = TimePrefixer(self._out, self._count)

    def _count(self) -> None:
        self.missing += 1

    def write(
        self, data: bytes, offset: int, times: list[tuple[int, int]] | None, attempt: tuple[int, int] = (0, 0)
    ) -> None:
        self.stream.begin_piece(attempt, offset, times)
        self.stream.write(data)

    @property
    def lines(self) -> list[str]:
        return self._out.getvalue().decode().splitlines()


def test_each_line_has_the_time_of_its_first_byte() -> None:
    timed = _Timed()
    timed.write(b"one\ntwo\nthr", 0, [(0, FIRST_MS), (4, FIRST_MS + 5000)])
    timed.write(b"ee\nfour\n", 11, [(11, FIRST_MS + 5000), (14, FIRST_MS + 9000)])
    assert timed.lines == [
        "2023-11-14 22:13:20 one",
        "2023-11-14 22:13:25 two",
        "2023-11-14 22:13:25 three",
        "2023-11-14 22:13:29 four",
    ]


def test_pieces_of_one_frame_repeat_its_times() -> None:
    timed = _Timed()
    times = [(0, FIRST_MS), (4, FIRST_MS + 5000), (8, FIRST_MS + 6000)]
    for offset in range(0, 12, 3):
        timed.write(b"one\ntwo\ntre\n"[offset : offset + 3], offset, times)
    assert [line[17:] for line in timed.lines] == ["20 one", "25 two", "26 tre"]


def test_progress_bar_is_its_last_version_with_that_time() -> None:
    timed = _Timed()
    timed.write(b"10%\r90%\r\nend\n", 0, [(0, FIRST_MS), (4, FIRST_MS + 3000)])
    assert [line[17:] for line in timed.lines] == ["23 90%", "23 end"]


def test_new_attempt_begins_with_its_own_times() -> None:
    timed = _Timed()
    timed.write(b"unfinished", 0, [(0, FIRST_MS)])
    timed.write(b"again\n", 0, [(0, FIRST_MS + 7000)], (0, 1))
    assert [line[17:] for line in timed.lines] == ["20 unfinished", "27 again"]


def test_long_line_has_one_time() -> None:
    timed = _Timed()
    timed.write(b"a" * 70_000, 0, [(0, FIRST_MS)])
    timed.write(b"b\nnext\n", 70_000, [(70_000, FIRST_MS + 1000)])
    first, second = timed.lines
    assert first == "2023-11-14 22:13:20 " + "a" * 70_000 + "b"
    assert second.endswith(":21 next")


def test_log_without_times_stays_as_it_is() -> None:
    timed = _Timed()
    timed.write(b"one\n", 0, None)
    timed.write(b"two\n", 4, None)
    assert timed.lines == ["one", "two"]
    assert timed.missing == 1


def test_impossible_times_are_unknown() -> None:
    timed = _Timed()
    timed.write(b"one\ntwo\n", 0, [(2, -5), (4, 1 << 62)])
    timed.write(b"three\n", 8, [])
    assert [line.split() for line in timed.lines] == [["-", "one"], ["-", "two"], ["-", "three"]]
