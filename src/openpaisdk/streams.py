"""What a command reads and writes, where whoever started it closed that: ``>&-``."""

from __future__ import annotations

import os
import sys


def open_the_closed() -> None:
    """Then it comes from nowhere and goes there.

    In this order, and before anything else is opened, so that each has its number again.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
