"""Work counted instead of timed: no other load on a machine changes it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType


def work_of(action: Callable[[], object]) -> int:
    """How many functions an action calls, Python's own among them."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()  # a collection inside would be counted, with the callbacks and finalizers it calls
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


__all__ = ["work_of"]
