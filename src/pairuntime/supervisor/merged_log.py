"""Merged log: stdout and stderr in the order of their arrival, without splitting a line."""

from pairuntime.supervisor.log_segments import SegmentedLog

# An unfinished line longer than this is written as it arrives, and the other stream waits for its end …
_LONG_LINE_BYTES = 64 * 1024
# … until the other stream has this much waiting: then it breaks into the line.
_MAX_WAITING_BYTES = 1024 * 1024


class MergedLog:
    """The merged log of a task. A carriage return ends a line too: a progress bar is shown while it moves."""

    def __init__(
        self,
        log: "SegmentedLog",
        long_line_bytes: "int" = _LONG_LINE_BYTES,
        max_waiting_bytes: "int" = _MAX_WAITING_BYTES,
    ) -> "None":
        self._log = log
        self._long_line_bytes = long_line_bytes
        self._max_waiting_bytes = max_waiting_bytes
        self._pending = {}  # type: dict[str, bytes]
        self._ended = set()  # type: set[str]
        # Stream whose long line is being written.
        self._owner = None  # type: str | None
        # The log ends in an unfinished line that will not be continued: the next write ends it first.
        self._dangling = False

    def feed(self, stream: "str", data: "bytes") -> "None":
        pending = self._pending.get(stream)
        if pending:
            data = pending + data
        if self._owner is not None and self._owner != stream:
            if len(data) <= self._max_waiting_bytes:
                self._pending[stream] = data
                return
            self._owner = None
            self._dangling = True
        cut = _end_of_lines(data)
        if len(data) - cut > self._long_line_bytes:
            self._owner = stream
            self._pending[stream] = b""
            self._write(data)
            return
        self._pending[stream] = data[cut:]
        if cut:
            self._owner = None
            # A view: a copy of every read would be half of a supervisor's memory budget.
            self._write(memoryview(data)[:cut])
            self._release()

    def end(self, stream: "str") -> "None":
        """The stream has ended, maybe within a line."""
        self._ended.add(stream)
        if self._owner is not None:
            if self._owner != stream:
                return  # pending data follows when the long line of the other stream ends
            rest = self._pending.pop(stream, b"")
            if rest:
                self._write(rest)
            self._owner = None
            self._dangling = True
        self._release()

    def _release(self) -> "None":
        """Write the waiting lines, and the last line of an ended stream. No long line is being written."""
        for stream, data in list(self._pending.items()):
            cut = _end_of_lines(data)
            if cut:
                self._write(data[:cut])
            if stream in self._ended:
                del self._pending[stream]
                if data[cut:]:
                    self._write(data[cut:])
                    self._dangling = True
            elif cut:
                self._pending[stream] = data[cut:]

    def _write(self, data: "bytes | memoryview") -> "None":
        if self._dangling:
            self._log.write(b"\n")
            self._dangling = False
        self._log.write(data)


def _end_of_lines(data: "bytes") -> "int":
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
