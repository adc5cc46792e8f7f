"""Index of the times at which the output of a task arrived, beside its log.

An entry is written before output that arrives at least a second after the last entry. A full file is thinned:
the shortest distance between two entries doubles until half of the file is free. No problem with the index is
one of the log or of the task.
"""

import os
import time

from pairuntime.local_files import log_times_format as file_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pairuntime.supervisor.log_segments import SegmentedLog

INTERVAL_S = 1.0


class LogTimes:
    """``logs``: by the name of their stream. Nothing is kept in memory but the end of the file."""

    def __init__(
        self,
        folder: "str",
        logs: "dict[str, SegmentedLog]",
        interval_s: "float" = INTERVAL_S,
        max_entries: "int" = file_format.MAX_ENTRIES,
    ) -> "None":
        self._path = os.path.join(folder, file_format.NAME)
        self._logs = [logs[name] for name in file_format.STREAMS]
        self._interval_s = self._precision_s = interval_s
        self._max_entries = max_entries
        self._due = 0.0
        self._fd = -1
        self._entries = 0

    def note(self) -> "None":
        """Output has arrived, and is written to the log next."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self._interval_s
        try:
            self._append(file_format.entry(int(time.time() * 1000), [log.offset for log in self._logs]))
        except (OSError, OverflowError):
            pass  # a full disk: later output has a time again

    def _append(self, entry: "bytes") -> "None":
        if self._fd < 0:
            # An existing file can only be left from before the machine crashed.
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        elif self._entries >= self._max_entries:
            self._thin()
        data, at = entry, (1 + self._entries) * file_format.ENTRY_BYTES
        if not self._entries:
            data, at = file_format.header(_milliseconds(self._precision_s)) + entry, 0
        # What a full disk cut is written over.
        if os.pwrite(self._fd, data, at) == len(data):
            self._entries += 1

    def _thin(self) -> "None":
        """Replace the file by one with at most half of its entries, and a longer interval."""
        size = file_format.ENTRY_BYTES
        # From the file: in memory they would be most of what a supervisor has.
        data = os.pread(self._fd, self._entries * size, size)
        entries = [data[at : at + size] for at in range(0, len(data), size)]
        interval_s, precision_s = self._interval_s, self._precision_s
        while len(entries) > self._max_entries // 2:
            interval_s *= 2
            precision_s += interval_s
            entries = _thinned(entries, _milliseconds(interval_s))
        fresh = self._path + ".new"
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            content = file_format.header(_milliseconds(precision_s)) + b"".join(entries)
            if os.write(fd, content) < len(content):
                raise OSError("the disk is full")
            os.rename(fresh, self._path)
        except OSError:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd, self._entries = fd, len(entries)
        self._interval_s, self._precision_s = interval_s, precision_s


def _milliseconds(interval_s: "float") -> "int":
    return max(1, int(interval_s * 1000))


def _thinned(entries: "list[bytes]", interval_ms: "int") -> "list[bytes]":
    """Entries of which each is at least so far from the one before."""
    kept = entries[:1]
    last = file_format.time_of(entries[0])
    for entry in entries[1:]:
        time_ms = file_format.time_of(entry)
        # The clock may have been set back.
        if abs(time_ms - last) >= interval_ms:
            kept.append(entry)
            last = time_ms
    return kept
