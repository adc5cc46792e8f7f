"""Log segments: files named by their logical start, ``stdout.0``, ``stdout.67108864``, …

Offsets are logical: they count every byte the task wrote. When the oldest segment is deleted (size limit) or
bytes are dropped (full disk), later offsets do not change and a reader sees the gap.
"""

import errno
import os

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class SegmentedLog:
    def __init__(self, folder: "str", name: "str", limit: "int", segment: "int") -> "None":
        self._prefix = os.path.join(folder, name + ".")
        self._limit = limit
        self._segment = segment
        self._starts = []  # type: list[int]
        self._fd = -1
        self._size = 0
        self._offset = 0
        self.dropped = 0

    @property
    def offset(self) -> "int":
        return self._offset

    def write(self, data: "bytes | memoryview") -> "None":
        view = memoryview(data)
        while len(view):
            if self._fd < 0 and not self._open():
                self._drop(len(view))
                return
            room = self._segment - self._size
            try:
                done = os.write(self._fd, view[:room] if len(view) > room else view)
            except OSError as e:
                # On a full disk the oldest segment makes room. No error of a log may end its task.
                if e.errno not in _DISK_FULL or not self._drop_oldest(keep=1):
                    self._drop(len(view))
                    return
                continue
            self._size += done
            self._offset += done
            view = view[done:]
            if self._size >= self._segment:
                self._close()
                while self._offset - self._starts[0] > self._limit and self._drop_oldest(keep=1):
                    pass

    def sync(self) -> "None":
        if self._fd >= 0:
            try:
                os.fdatasync(self._fd)
            except OSError:
                pass

    def drop_all_but_newest(self) -> "bool":
        """Free space on a full disk. False if there was nothing to drop."""
        dropped = False
        while self._drop_oldest(keep=1):
            dropped = True
        return dropped

    def _open(self) -> "bool":
        while True:
            try:
                # An existing file of this name can only be left from before the machine crashed.
                self._fd = os.open(
                    self._prefix + str(self._offset), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
                )
            except OSError as e:
                if e.errno not in _DISK_FULL or not self._drop_oldest(keep=0):
                    return False
                continue
            self._starts.append(self._offset)
            self._size = 0
            return True

    def _close(self) -> "None":
        self.sync()
        try:
            os.close(self._fd)
        except OSError:
            pass
        self._fd = -1

    def _drop_oldest(self, keep: "int") -> "bool":
        if len(self._starts) <= keep:
            return False
        try:
            os.unlink(self._prefix + str(self._starts.pop(0)))
        except OSError:
            pass
        return True

    def _drop(self, count: "int") -> "None":
        """Count bytes that cannot be written; the next write starts a new segment."""
        self.dropped += count
        self._offset += count
        if self._fd >= 0:
            self._close()
