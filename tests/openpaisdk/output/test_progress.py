"""Progress bar: drawn on a terminal after a second, silent elsewhere."""

import io
import sys

import pytest

from openpaisdk.output.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("delay_s", "stream", "drawn"),
    [(0.0, Terminal, True), (60.0, Terminal, False), (0.0, io.StringIO, False)],
)
def test_bar_only_on_terminal_and_after_delay(monkeypatch, delay_s: float, stream, drawn: bool) -> None:
    screen = stream()
    monkeypatch.setattr(sys, "stderr", screen)
    with Progress("Sending", 100, delay_s, redraw_interval_s=0.0) as p:
        p.advance(50)
        p.advance(50)
    said = screen.getvalue()
    assert (" 50%" in said and "100%" in said and said.endswith("\r\x1b[K")) if drawn else said == ""
