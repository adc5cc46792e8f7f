"""One thread after the other where each asks the kernel for thousands of little things.

At once, they hand the interpreter to each other at every call: two of them need twice the processor time and
are no sooner done. Where the calls take long it is worth the while, so nobody waits long for his turn.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_S = 0.2
"""Several times what a pack takes on a disk of today."""


class SyscallLock:
    """``with turns.mine():`` around what is better done alone. It may be done at once, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        is_mine = self._lock.acquire(timeout=LONGEST_S)
        try:
            yield
        finally:
            if is_mine:
                self._lock.release()
