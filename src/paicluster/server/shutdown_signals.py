"""Being asked to leave, by SIGTERM, Ctrl-C or a terminal that closes, from the server's first moment on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

_begun = False
_asked = False
_follow: Callable[[], None] | None = None


def install() -> None:
    """Before the heavy imports: whoever is asked to leave then has done nothing yet, and simply leaves."""
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, _ask)
    # Under nohup it goes on when the terminal closes.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _ask)


def defer() -> None:
    """From now on there is something to be closed: the wish to leave is kept until it can be followed."""
    global _begun
    _begun = True


def requested() -> bool:
    return _asked


def on_shutdown(stop: Callable[[], None] | None) -> None:
    """From now on the wish can be followed, by this; None: it is being followed already."""
    global _follow
    _follow = stop


def _ask(signum: int, frame: FrameType | None) -> None:
    global _asked
    if not _begun:
        os._exit(0)
    _asked = True
    if _follow is not None:
        _follow()
