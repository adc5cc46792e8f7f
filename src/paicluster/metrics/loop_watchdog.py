"""How late the event loop is, and what it is doing when it is stuck."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from types import FrameType

log = logging.getLogger("paicluster.heartbeat")

BEAT_S = 1.0


class LoopWatchdog:
    """The loop says every second that it is alive; a thread listens, and prints the stack when it does not.

    ``lag_s`` is how much later than asked for the last beat came, ``worst_lag_s`` the worst since it was last
    taken by `take_worst`.
    """

    def __init__(self, stuck_after_s: float = 5.0) -> None:
        self._stuck_after_s = stuck_after_s
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ended = threading.Event()
        self._beat = time.monotonic()
        self._next: asyncio.TimerHandle | None = None
        self.lag_s = 0.0
        self._worst_s = 0.0
        self.stuck_total = 0
        self._schedule()
        self._thread = threading.Thread(target=self._listen, name="heartbeat", daemon=True)
        self._thread.start()

    def take_worst(self) -> float:
        worst, self._worst_s = max(self._worst_s, self.lag_s), 0.0
        return worst

    def close(self) -> None:
        self._ended.set()
        if self._next is not None:
            self._next.cancel()
        self._thread.join(self._stuck_after_s)

    def _schedule(self) -> None:
        self._due = time.monotonic() + BEAT_S
        self._next = self._loop.call_later(BEAT_S, self._alive)

    def _alive(self) -> None:
        self._beat = time.monotonic()
        self.lag_s = max(0.0, self._beat - self._due)
        self._worst_s = max(self._worst_s, self.lag_s)
        self._schedule()

    def _listen(self) -> None:
        """Wakes about when silence would become worrying, and not oftener."""
        said_of = 0.0
        while True:
            beat = self._beat
            quiet = time.monotonic() - beat
            if quiet >= BEAT_S + self._stuck_after_s and beat != said_of:
                said_of = beat
                self.stuck_total += 1
                self._tell(quiet - BEAT_S)
            rest = BEAT_S + self._stuck_after_s - quiet
            if self._ended.wait(rest if rest > 0.05 else self._stuck_after_s):
                return

    def _tell(self, stuck_s: float) -> None:
        frame: FrameType | None = sys._current_frames().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(it has no stack)\n"
        log.error("The event loop has been stuck for %.1f s, here:\n%s", stuck_s, stack.rstrip())
