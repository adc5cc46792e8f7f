"""Lock around work that makes thousands of short system calls.

Threads doing such work at the same time pass the interpreter lock to each other at every call: two of them
need twice the processor time and finish no sooner. Where single calls take long, parallel work does pay off,
so the wait for this lock is short.
"""

import threading
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_TIMEOUT_S = 0.2
"""Several times the duration of one pack on a current disk."""


class SyscallLock:
    """``with lock.held():`` around work that is better done alone. After the timeout it runs in parallel."""

    def __init__(self) -> "None":
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> "Iterator[None]":
        is_acquired = self._lock.acquire(timeout=LOCK_TIMEOUT_S)
        try:
            yield
        finally:
            if is_acquired:
                self._lock.release()
