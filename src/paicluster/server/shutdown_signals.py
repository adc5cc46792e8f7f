"""Shutdown on SIGTERM, SIGINT and SIGHUP, handled from the first moment of the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

_deferred = False
_requested = False
_on_shutdown: Callable[[], None] | None = None


def install() -> None:
    """Install the handlers, before the heavy imports. Until `defer` a signal ends the process at once."""
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, _handle)
    # Under nohup the server keeps running when the terminal closes.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _handle)


def defer() -> None:
    """From now on a signal is remembered instead of exiting at once: there are resources to close."""
    global _deferred
    _deferred = True


def requested() -> bool:
    return _requested


def on_shutdown(stop: Callable[[], None] | None) -> None:
    """Call ``stop`` on a signal from now on; None: shutdown is already under way."""
    global _on_shutdown
    _on_shutdown = stop


def _handle(signum: int, frame: FrameType | None) -> None:
    global _requested
    if not _deferred:
        os._exit(0)
    _requested = True
    if _on_shutdown is not None:
        _on_shutdown()
