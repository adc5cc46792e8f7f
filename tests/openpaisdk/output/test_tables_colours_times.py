"""Tables, colours, times, JSON and YAML."""

import io

import pytest

from openpaisdk.output import FORMATS, format_duration, format_time, palette, show, show_all, table
from openpaisdk.output.table import printable, width


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
