"""Being asked to leave, by SIGTERM or Ctrl-C, from the server's first moment on."""

from __future__ import annotations

import os
import signal
from types import FrameType

_begun = False
_asked = False


def listen() -> None:
    """Before the heavy imports: whoever is asked to leave then has done nothing yet, and simply leaves."""
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, _ask)


def begin() -> None:
    """From now on there is something to be closed: the wish to leave is kept until it can be followed."""
    global _begun
    _begun = True


def asked() -> bool:
    return _asked


def _ask(signum: int, frame: FrameType | None) -> None:
    global _asked
    if not _begun:
        os._exit(0)
    _asked = True
