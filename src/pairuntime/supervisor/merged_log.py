"""stdout and stderr in one log, in the order they came, never splitting a line."""

from pairuntime.supervisor.log_segments import SegmentedLog

# Past this a line without an end is written as it comes, and the other stream waits for its end …
_LONG_LINE = 64 * 1024
# … but not for ever: what waits longer than this breaks in.
_MAX_LINE_BYTES = 1024 * 1024


class MergedLog:
    """A carriage return ends a line too, so a progress bar shows while it moves."""

    def __init__(self, log: "SegmentedLog") -> "None":
        self._log = log
        self._pending = {}  # type: dict[str, bytes]
        self._ended = set()  # type: set[str]
        # Whose long line is being written.
        self._owner = None  # type: str | None
        # The log ends in a line that nobody will go on with: whoever writes next ends it first.
        self._dangling = False

    def feed(self, stream: "str", data: "bytes") -> "None":
        pending = self._pending.get(stream)
        if pending:
            data = pending + data
        if self._owner is not None and self._owner != stream:
            if len(data) <= _MAX_LINE_BYTES:
                self._pending[stream] = data
                return
            self._owner = None
            self._dangling = True
        cut = _end_of_lines(data)
        if len(data) - cut > _LONG_LINE:
            self._owner = stream
            self._pending[stream] = b""
            self._write(data)
            return
        self._pending[stream] = data[cut:]
        if cut:
            self._owner = None
            # A view: a copy of every read would be half of the memory that a supervisor may have.
            self._write(memoryview(data)[:cut])
            self._release()

    def end(self, stream: "str") -> "None":
        """The stream is over: its last line may have no end."""
        self._ended.add(stream)
        if self._owner is not None:
            if self._owner != stream:
                return  # what is pending follows when the long line of the other ends
            rest = self._pending.pop(stream, b"")
            if rest:
                self._write(rest)
            self._owner = None
            self._dangling = True
        self._release()

    def _release(self) -> "None":
        """Nobody is within a line: write the lines that waited, and the last one of a stream that is over."""
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
