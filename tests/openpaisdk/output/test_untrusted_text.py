"""Text of others cannot control the terminal."""

from __future__ import annotations

import io
import json
import re

import pytest

from openpaisdk.output.colour import Palette
from openpaisdk.output.untrusted_text import TerminalLog, visible
from support.paths import REPOSITORY

CLEAR_SCREEN = "\x1b[2J"
SET_CLIPBOARD = "\x1b]52;c;cm0gLXJm\x07"
SEQUENCES = json.loads((REPOSITORY / "tests/paiprotocol/jobs/escape_sequences.json").read_text())


@pytest.mark.parametrize(
    "hostile", [CLEAR_SCREEN, SET_CLIPBOARD, "\x9b2J", "\r", "\x08", "\u202e", "\x1b[8m"]
)
def test_control_sequences_in_text_are_shown_as_escapes(hostile: str) -> None:
    assert visible(f"a{hostile}b").isprintable()


def test_lines_tabs_and_own_colours_are_kept() -> None:
    text = Palette(True).paint("two\n\tlines", "red") + " größer 漢字"
    assert visible(text) == text


def written(*pieces: bytes) -> bytes:
    out = io.BytesIO()
    log = TerminalLog(out)
    for piece in pieces:
        log.write(piece)
    return out.getvalue()


@pytest.mark.parametrize(
    "kept",
    [
        b"\x1b[1;31mred\x1b[0m",
        b"\x1b[38;5;200m",
        b" 40%\r 50%\x1b[K\n",
        b"\x1b[Aone line up\n",
        "größer 漢字 ±".encode(),
        b"\xff\xfe not UTF-8",
    ],
)
def test_log_on_a_terminal_keeps_colours_and_progress_bars(kept: bytes) -> None:
    assert written(kept) == kept
    assert written(*(kept[i : i + 1] for i in range(len(kept)))) == kept


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        (CLEAR_SCREEN.encode(), b"\\x1b[2J"),
        (SET_CLIPBOARD.encode(), b"\\x1b]52;c;cm0gLXJm\\x07"),
        (b"\x1bc", b"\\x1bc"),
        (b"\x1b[?1049h", b"\\x1b[?1049h"),
        (b"\x1b[6n", b"\\x1b[6n"),
        ("\x9b2J".encode(), b"\\x9b2J"),
        (b"\x1b[" + b"1" * 100 + b"m", b"\\x1b[" + b"1" * 100 + b"m"),
    ],
)
def test_log_on_a_terminal_shows_other_sequences_as_escapes(hostile: bytes, shown: bytes) -> None:
    assert written(b"a" + hostile + b"b") == b"a" + shown + b"b"
    assert written(*(bytes([byte]) for byte in b"a" + hostile + b"b")) == b"a" + shown + b"b"


@pytest.mark.parametrize("case", SEQUENCES, ids=lambda case: str(case["name"]))
def test_no_sequence_hides_a_line_of_a_log_on_a_terminal(case: dict[str, str]) -> None:
    raw = case["raw"].encode() + b"end\n"
    whole = written(raw)
    assert all(written(raw[:cut], raw[cut:]) == whole for cut in range(len(raw)))
    lines = whole.decode().split("\n")
    assert len(lines) == raw.count(b"\n") + 1 and lines[-2].endswith("end")
    assert ("IMPORTANT" in whole.decode()) == ("IMPORTANT" in case["raw"])
    # What begins a sequence is shown, except of colours.
    assert whole.count(b"\x1b") == len(re.findall(rb"\x1b\[[0-9;:]*m", raw))
