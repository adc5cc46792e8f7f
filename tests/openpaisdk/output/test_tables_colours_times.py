"""Tables, colours, times, JSON and YAML."""

import io

import pytest

from openpaisdk.output import (
    FORMATS,
    format_age,
    format_duration,
    format_time,
    palette,
    show,
    show_all,
    table,
)
from openpaisdk.output.line_prefix import LinePrefixer
from openpaisdk.output.line_stream import MAX_LINE_BYTES
from openpaisdk.output.log_levels import LevelFilter
from openpaisdk.output.table import printable, shorten, width


def test_columns_are_aligned_and_numbers_right() -> None:
    text = table(["NAME", "N"], [["a", "1"], ["longer", "100"]], right=frozenset({1}))
    assert text.splitlines() == ["NAME      N", "a         1", "longer  100"]


def test_wide_characters_count_twice() -> None:
    assert width("训练") == 4
    lines = table(["A", "B"], [["训练", "x"], ["abcd", "y"]]).splitlines()
    assert lines[1].endswith("  x") and lines[2] == "abcd  y"


def test_control_characters_in_cells_are_escaped() -> None:
    assert printable("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"


def test_no_colour_without_a_terminal_or_with_no_color(monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert palette(io.StringIO()).state("FAILED") == "FAILED"
    assert palette(Terminal()).state("FAILED") == "\x1b[31mFAILED\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert palette(Terminal()).state("FAILED") == "FAILED"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "values", [[], [1], [{"name": "a\nb", "list": [1, {}]}, {"name": "ä\udcff"}, [], "x"]]
)
def test_show_all_prints_like_show(form: str, values: list[object], capsys) -> None:
    if form == "yaml" and values:
        values = [
            value for value in values if value != {"name": "ä\udcff"}
        ]  # YAML cannot represent bytes that are not UTF-8
    show(values, form, lambda: "\n".join(map(ascii, values)))
    whole = capsys.readouterr().out
    show_all(iter(values), form, lambda: map(ascii, values))
    assert capsys.readouterr().out == whole


def test_format_duration() -> None:
    assert format_duration(None, None) == "-"
    assert format_duration(0, 1234) == "1.2s"
    assert format_duration(0, 59_000) == "59s"
    assert format_duration(0, 125_000) == "2m05s"
    assert format_duration(0, 3_700_000) == "1h01m"
    assert format_duration(0, 200_000_000) == "2d07h"
    assert format_duration(1000, None, now_ms=3000) == "2.0s"


def test_missing_time_is_a_dash() -> None:
    assert format_time(None) == "-"
    assert len(format_time(0)) == len("1970-01-01 00:00:00")


def test_format_age() -> None:
    now = 1_800_000_000_000
    ages = [(0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (86_400 * 2, "2d")]
    for seconds, text in ages:
        assert format_age(now - seconds * 1000, now) == f"{text} ago"
    assert format_age(now + 5000, now) == "0s ago", "the cluster's clock may be ahead"
    assert format_age(now - 86_400_000 * 40, now).startswith("202")
    assert format_age(None) == "-"


@pytest.mark.parametrize(
    ("text", "columns", "keep_end", "short"),
    [
        ("fits", 4, False, "fits"),
        ("too long", 7, False, "too..."),
        ("beginning-end", 9, True, "beg...end"),
        ("\u8bad\u7ec3\u6570\u636e", 7, False, "\u8bad\u7ec3..."),
        ("abcdef", 2, False, ".."),
    ],
)
def test_shorten(text: str, columns: int, keep_end: bool, short: str) -> None:
    assert shorten(text, columns, keep_end=keep_end) == short
    assert width(short) <= columns


def test_table_is_fitted_step_by_step() -> None:
    def fitted(columns: int | None) -> list[str]:
        fit = ((2, 10), (1, 0), (0, 6))
        return table(
            ["NAME", "N", "REASON"], [["a-long-name", "12345", "x" * 30]], columns=columns, fit=fit
        ).splitlines()

    assert fitted(None)[1] == fitted(50)[1] == f"a-long-name  12345  {'x' * 30}"
    assert fitted(40)[1] == f"a-long-name  12345  {'x' * 17}..."
    assert fitted(23) == ["NAME         REASON", "a-long-name  xxxxxxx..."]
    assert fitted(18)[1] == "a-l...  xxxxxxx..."
    assert len(fitted(5)[1]) == 18, "no further than the steps allow"


def test_prefixer_writes_whole_lines() -> None:
    out = io.BytesIO()
    prefixer = LinePrefixer(out, "a | ")
    prefixer.write(b"one\ntw")
    assert out.getvalue() == b"a | one\n"
    prefixer.write(b"o\n\n 1%\r 2%\r\nend")
    prefixer.end_line()
    prefixer.end_line()
    assert out.getvalue() == b"a | one\na | two\na | \na |  2%\na | end\n"


def test_prefixer_does_not_hold_an_endless_line() -> None:
    out = io.BytesIO()
    prefixer = LinePrefixer(out, "a | ")
    prefixer.write(b"x" * (MAX_LINE_BYTES + 1))
    assert out.getvalue() == b"a | " + b"x" * (MAX_LINE_BYTES + 1) + b"\n"


@pytest.mark.parametrize(("level", "is_shown"), [("INFO", False), ("ERROR", True)])
def test_level_filter_passes_or_drops_a_line_without_end_in_parts(level: str, is_shown: bool) -> None:
    out = io.BytesIO()
    filtered = LevelFilter(out, "WARNING")
    line = f"2026-01-02T03:04:05.678Z {level} train: ".encode()
    filtered.write(line)
    for _ in range(5):
        part = b"x" * (MAX_LINE_BYTES + 1)
        filtered.write(part)
        line += part
        assert out.getvalue() == (line if is_shown else b""), "no more than a part is held back"
    filtered.write(b" and its end\nno level\n")
    assert out.getvalue() == (line + b" and its end\n" if is_shown else b"")
    assert filtered.has_passed is is_shown


def test_level_filter_ends_a_line_of_which_a_part_was_written() -> None:
    out = io.BytesIO()
    filtered = LevelFilter(out, "INFO")
    text = b"2026-01-02T03:04:05.678Z INFO train: " + b"x" * MAX_LINE_BYTES
    filtered.write(text)
    filtered.end_line()
    filtered.end_line()
    assert out.getvalue() == text + b"\n"
