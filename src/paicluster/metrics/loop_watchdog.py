"""Watchdog of the event loop: measures its lag and logs its stack when it stalls."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from types import FrameType

log = logging.getLogger("paicluster.watchdog")

HEARTBEAT_INTERVAL_S = 1.0


class LoopWatchdog:
    """Sends a heartbeat through the loop every second; a thread logs the loop's stack when one is missing.

    ``lag_s`` is the delay of the last heartbeat; `take_max_lag` returns the largest since its last call.
    """

    def __init__(self, stall_after_s: float = 5.0) -> None:
        self._stall_after_s = stall_after_s
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._closed = threading.Event()
        self._last_heartbeat = time.monotonic()
        self._next: asyncio.TimerHandle | None = None
        self.lag_s = 0.0
        self._max_lag_s = 0.0
        self.stalls_total = 0
        self._schedule()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def take_max_lag(self) -> float:
        max_lag_s, self._max_lag_s = max(self._max_lag_s, self.lag_s), 0.0
        return max_lag_s

    def close(self) -> None:
        self._closed.set()
        if self._next is not None:
            self._next.cancel()
        self._thread.join(self._stall_after_s)

    def _schedule(self) -> None:
        self._due = time.monotonic() + HEARTBEAT_INTERVAL_S
        self._next = self._loop.call_later(HEARTBEAT_INTERVAL_S, self._on_heartbeat)

    def _on_heartbeat(self) -> None:
        self._last_heartbeat = time.monotonic()
        self.lag_s = max(0.0, self._last_heartbeat - self._due)
        self._max_lag_s = max(self._max_lag_s, self.lag_s)
        self._schedule()

    def _watch(self) -> None:
        """Wake when the next heartbeat would be overdue, not more often."""
        reported = 0.0
        while True:
            beat = self._last_heartbeat
            silent_s = time.monotonic() - beat
            if silent_s >= HEARTBEAT_INTERVAL_S + self._stall_after_s and beat != reported:
                reported = beat
                self.stalls_total += 1
                self._report(silent_s - HEARTBEAT_INTERVAL_S)
            remaining_s = HEARTBEAT_INTERVAL_S + self._stall_after_s - silent_s
            if self._closed.wait(remaining_s if remaining_s > 0.05 else self._stall_after_s):
                return

    def _report(self, stalled_s: float) -> None:
        frame: FrameType | None = sys._current_frames().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(no stack)\n"
        log.error("The event loop has stalled for %.1f s, at:\n%s", stalled_s, stack.rstrip())
