"""Output stream that writes each line of a log after the time at which the line was written."""

from __future__ import annotations

from bisect import bisect_right

from openpaisdk.output.line_stream import LineStream
from openpaisdk.output.times import format_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from openpaisdk.output.line_stream import Output

_MAX_TIME_MS = 32_503_593_600_000
"""A day before the year 3000, the last whose local times every system knows."""
_UNKNOWN = b"-".ljust(len("2026-11-19 00:00:00")) + b" "


class TimePrefixer(LineStream):
    """Writes each complete line after its time; without any known time unchanged.

    Of a line that was overwritten with carriage returns, as progress bars do, the last version is written.
    """

    __slots__ = ("_attempt", "_has_times", "_offset", "_on_missing", "_times")

    def __init__(self, out: Output, on_missing: Callable[[], None]):
        """``on_missing`` is called if the log, or the part of an attempt, has no times."""
        super().__init__(out)
        self._on_missing = on_missing
        self._attempt: object = None
        self._has_times = False
        self._times: list[tuple[int, int]] = []
        self._offset = 0
        """That of the first byte that was not written yet."""

    def begin_piece(self, attempt: object, offset: int, times: list[tuple[int, int]] | None) -> None:
        """What is written next has this offset; ``times``: pairs of an offset and milliseconds since 1970."""
        if attempt != self._attempt:
            self.end_line()
            self._times = []
            self._has_times = False
            if times is None:
                self._on_missing()
        # An index may begin later than its log, after a full disk.
        self._has_times = self._has_times or times is not None
        self._attempt, self._offset = attempt, offset - len(self._rest)
        # Of a large part, each piece has all times. Those before the line that is held back are done.
        last = self._times[-1][0] if self._times else -1
        done = max(0, bisect_right(self._times, self._offset, key=lambda pair: pair[0]) - 1)
        self._times = self._times[done:] + [pair for pair in times or () if pair[0] > last]

    def _write_lines(self, lines: Sequence[bytes]) -> None:
        written = []
        for line in lines:
            written.append(self._shown(line) + b"\n")
            self._offset += len(line) + 1
            self._begun = False
        self._out.write(b"".join(written))

    def _write_part(self, part: bytes) -> None:
        self._out.write(self._shown(part))
        self._offset += len(part)
        self._begun = True

    def _shown(self, line: bytes) -> bytes:
        if self._begun or not self._has_times:
            return line
        whole = line.rstrip(b"\r")
        last = whole.rpartition(b"\r")[2]
        return self._prefix(self._offset + len(whole) - len(last)) + last

    def _prefix(self, offset: int) -> bytes:
        at = bisect_right(self._times, offset, key=lambda pair: pair[0]) - 1
        time_ms = self._times[at][1] if at >= 0 else -1
        return format_time(time_ms).encode() + b" " if 0 <= time_ms <= _MAX_TIME_MS else _UNKNOWN
