"""Clock of the retention: a machine that starts with a clock far ahead must not expire the whole history.

The last time seen is kept in the home. A server that finds the clock far ahead of it cannot know whether it
was down for so long or whether the clock is wrong. So it goes on from the last time seen, which only keeps
jobs longer, and accepts the clock after it has run for a week: by then a wrong one was noticed.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

log = logging.getLogger("paicluster.retention")

_DAY_S = 24 * 3600.0
# Servers are down for a night, and clocks are off by a time zone.
_MAX_JUMP_S = _DAY_S
_DISTRUST_S = 7 * _DAY_S


class RetentionClock:
    """``file``: where the last time seen is kept; None: nowhere, and the clock is right at the start."""

    def __init__(self, file: Path | None = None):
        self._file = file
        # Time on this clock when it was last set, and seconds since boot then.
        self._set_to_s, self._set_at_s = time.time(), _boot_time_s()
        # How long servers have already run with the clock ahead; None: it is not.
        self._distrusted_s: float | None = None

    def open(self) -> None:
        """Go on from the last time that a server of this home saw."""
        if self._file is None:
            return
        try:
            content = json.loads(self._file.read_bytes())
            last_s, distrusted_s = float(content["time"]), float(content["distrusted_s"] or 0)
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("Cannot read the last time seen from %s: %s", self._file, error)
            return
        if time.time() - last_s <= _MAX_JUMP_S:
            return
        self._set(last_s)
        self._distrusted_s = distrusted_s
        log.warning(
            "The clock is %d days ahead of the last time this cluster saw. If it is wrong, set it and "
            "restart the server. If it is right, nothing is to be done: retention accepts it in a week, "
            "and keeps jobs longer until then.",
            (time.time() - last_s) // _DAY_S,
        )

    def now_ms(self) -> int:
        """The time now, at most the last known time plus what has elapsed: a jump ahead expires nothing."""
        if self._distrusted_s is not None and self._distrusted_s + self._elapsed_s() >= _DISTRUST_S:
            log.warning("The server has run for a week with this clock: retention accepts it as right.")
            self._set(time.time())
            self._distrusted_s = None
        return int(min(time.time(), self._set_to_s + self._elapsed_s()) * 1000)

    def save(self) -> None:
        """Keep the time for the next server."""
        if self._file is None:
            return
        distrusted_s = None if self._distrusted_s is None else self._distrusted_s + self._elapsed_s()
        content = {"time": self.now_ms() / 1000, "distrusted_s": distrusted_s}
        staging = self._file.with_name(self._file.name + ".staging")
        try:
            staging.write_text(json.dumps(content))
            staging.replace(self._file)
        except OSError as error:
            log.warning("Cannot keep the last time seen in %s: %s", self._file, error)

    def _set(self, now_s: float) -> None:
        self._set_to_s, self._set_at_s = now_s, _boot_time_s()

    def _elapsed_s(self) -> float:
        return _boot_time_s() - self._set_at_s


def _boot_time_s() -> float:
    """Seconds since the machine booted, suspend included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
