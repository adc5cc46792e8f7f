"""Standard streams that are closed or lose their reader."""

from __future__ import annotations

import os
import sys

BROKEN_PIPE_STATUS = 141
"""128 + SIGPIPE: the status a shell reports for a tool that was killed by a broken pipe."""


def reopen_closed_stdio() -> None:
    """Open /dev/null for every standard stream that the caller closed (``>&-``).

    In this order, and before any other file is opened, so that each stream gets its own descriptor number.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def silence_broken_pipe() -> int:
    """Handle a closed reader (``| head -1``) or a full disk; returns the exit status.

    Redirects stdout to /dev/null, so that the final flush of the interpreter does not fail.
    """
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
    except (OSError, ValueError):
        pass
    return BROKEN_PIPE_STATUS
