"""Escape sequences in text: they are removed, and hide no text of another line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from paiprotocol.jobs.escape_sequences import without_escapes
from paiprotocol.jobs.log_end import LogEnd, last_line

CASES = json.loads((Path(__file__).parent / "escape_sequences.json").read_text())
"""Also those of the portal's test."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_sequences_are_removed_and_hide_no_other_line(case: dict[str, str]) -> None:
    assert without_escapes(case["raw"]) == case["shown"]
    assert LogEnd(case["raw"]).lines == re.split("\n", case["shown"].rstrip())
    assert (
        last_line(case["raw"])
        == case["shown"].split("\n")[-2 if case["shown"].endswith("\n") else -1].strip()
    )


def test_exception_between_the_parts_of_a_sequence_is_found() -> None:
    raised = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nValueError: bad'
    log = f"\x1b]8;;u\n{raised}\n\x07\n"
    assert [raised.text for raised in LogEnd(log).exceptions()] == ["ValueError: bad"]
