"""What a command reads and writes, where nobody is at the other end."""

from __future__ import annotations

import os
import sys

BROKEN_PIPE_STATUS = 141
"""128 + SIGPIPE: what a shell reports for any other tool in the same place."""


def reopen_closed_stdio() -> None:
    """Whoever started us may have closed it (``>&-``): then it comes from nowhere and goes there.

    In this order, and before anything else is opened, so that each has its number again.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def silence_broken_pipe() -> int:
    """The reader of our output has left (``| head -1``), or there is no room for it: let the last flush be
    harmless, and say how to end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
    return BROKEN_PIPE_STATUS
