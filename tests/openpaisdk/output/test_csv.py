"""Records as CSV: exact in files and pipes, harmless at a terminal."""

from __future__ import annotations

import csv
import io
import sys

import pytest

from openpaisdk.output import show_csv

HOSTILE = 'a,"b"\r\n\x1b[2Jend'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_values_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    show_csv([{"name": HOSTILE, "loss": 1 / 3}, {"name": None, "loss": float("nan")}])
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert rows == [["name", "loss"], [HOSTILE, repr(1 / 3)], ["", "nan"]]


def test_no_value_controls_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    show_csv([{"name": HOSTILE}])
    assert terminal.getvalue() == 'name\n"a,""b""\\r\n\\x1b[2Jend"\n'


def test_nothing_of_no_records(capsys: pytest.CaptureFixture[str]) -> None:
    show_csv([])
    assert capsys.readouterr().out == ""
