"""stdout and stderr in one log, in the order they came, never splitting a line."""

from pairuntime.supervisor.segments import Log

# Past this a line without an end is written as it comes, and the other stream waits for its end …
_LONG_LINE = 64 * 1024
# … but not for ever: what waits longer than this breaks in.
_PATIENCE = 1024 * 1024


class Merged:
    """A carriage return ends a line too, so a progress bar shows while it moves."""

    def __init__(self, log: "Log") -> "None":
        self._log = log
        self._pending = {}  # type: dict[str, bytes]
        self._owner = None  # type: str | None

    def feed(self, stream: "str", data: "bytes") -> "None":
        pending = self._pending.get(stream)
        if pending:
            data = pending + data
        if self._owner is not None and self._owner != stream:
            if len(data) <= _PATIENCE:
                self._pending[stream] = data
                return
            self._log.write(b"\n")
            self._owner = None
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - cut > _LONG_LINE:
            self._owner = stream
            cut = len(data)
        elif cut and self._owner == stream:
            self._owner = None
        if cut:
            self._log.write(data[:cut] if cut < len(data) else data)
        self._pending[stream] = data[cut:]
        if cut and self._owner is None:
            self._release(stream)

    def end(self, stream: "str") -> "None":
        """The stream is over: its last line may have no end."""
        rest = self._pending.pop(stream, b"")
        if self._owner is not None and self._owner != stream:
            self._log.write(b"\n")
        self._owner = None
        if rest:
            self._log.write(rest)
        for other in list(self._pending):
            if rest and self._pending[other]:
                self._log.write(b"\n")
            self._release(other)

    def _release(self, finished: "str") -> "None":
        """Lines of the other stream that waited for a long line to end."""
        for stream, data in list(self._pending.items()):
            cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            if cut:
                self._log.write(data[:cut])
                self._pending[stream] = data[cut:]
