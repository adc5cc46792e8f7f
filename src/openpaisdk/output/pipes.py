"""What to do when the reader of our output has left (``pai list-jobs | head -1``)."""

from __future__ import annotations

import os
import sys

BROKEN_PIPE_STATUS = 141
"""128 + SIGPIPE: what a shell reports for any other tool in the same place."""


def silence_broken_pipe() -> int:
    """Make the interpreter's last flush harmless, and say how to end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
    return BROKEN_PIPE_STATUS
