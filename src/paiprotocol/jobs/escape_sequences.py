"""Escape sequences of terminals (ECMA-48), removed from text.

A sequence ends within its line, because no line of a log may hide another: of one that does not, only the
introducer is removed, and its text stays. ``portal/src/escape_sequences.ts`` is the same for the portal; one
table of cases tests both.
"""

from __future__ import annotations

import re

_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI with its final byte
    # OSC, DCS, SOS, PM and APC with their terminator, BEL or ST
    r"|(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\x00-\x08\n-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]+[0-~]|\x1b[0-~]"  # such as those that choose a character set
    r"|[\x00-\x08\v\f\x0e-\x1f\x7f-\x9f]"
)


def without_escapes(text: str) -> str:
    """Text without escape sequences and other control characters, except tabs and line ends."""
    return _SEQUENCES.sub("", text)
