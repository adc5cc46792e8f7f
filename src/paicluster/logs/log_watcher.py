"""Wakes readers when a log folder changes: by inotify where it works, else they poll."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from pathlib import Path

from openpaisdk.fileio.network_fs import is_on_network
from paicluster.logs.reader import STREAMS

_MODIFY = 0x2
_CREATE = 0x100
_DELETE = 0x200
_MOVED_TO = 0x80
_NONBLOCK = os.O_NONBLOCK
_CLOEXEC = os.O_CLOEXEC
_EVENT = struct.Struct("iIII")

_LOGS = tuple(f"{stream}.".encode() for stream in STREAMS)

# Polling interval where inotify cannot be used: a full watch table, a network file system.
POLL_INTERVAL_S = 0.25

# Limit of the bytes in flight to all followers together: slow ones would otherwise fill the memory.
_MAX_IN_FLIGHT = 16 << 20
_MIN_CHUNK, _MAX_CHUNK = 16 << 10, 256 << 10


class LogWatcher:
    """One inotify descriptor for all followers of the server."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        self._waiters: dict[int, set[asyncio.Event]] = {}
        self._started = False
        self._open: set[Watch] = set()

    @property
    def chunk_size(self) -> int:
        """How many bytes one follower may read at once; the more followers, the fewer."""
        return max(_MIN_CHUNK, min(_MAX_CHUNK, _MAX_IN_FLIGHT // max(1, len(self._open))))

    def close(self) -> None:
        if self._fd >= 0:
            if self._started:
                asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def watch(self, folder: Path) -> Watch:
        event = asyncio.Event()
        if not self._started and self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._read)
            self._started = True
        wd = -1
        if self._fd >= 0 and not is_on_network(folder):
            mask = _MODIFY | _CREATE | _DELETE | _MOVED_TO
            # The kernel returns the same descriptor for the same folder.
            wd = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), mask)
        if wd >= 0:
            self._waiters.setdefault(wd, set()).add(event)
        watch = Watch(self, wd, event)
        self._open.add(watch)
        return watch

    def forget(self, watch: Watch, wd: int) -> None:
        self._open.discard(watch)
        waiters = self._waiters.get(wd)
        if waiters is None:
            return
        waiters.discard(watch.event)
        if not waiters:
            del self._waiters[wd]
            self._libc.inotify_rm_watch(self._fd, wd)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            wd, _, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length]
            at += _EVENT.size + length
            # State files of the task lie beside the log: they wake no reader.
            if wd >= 0 and not name.startswith(_LOGS):
                continue
            # -1: the kernel's event queue overflowed, so any folder may have changed.
            waiters = [self._waiters.get(wd, set())] if wd >= 0 else list(self._waiters.values())
            for events in waiters:
                for event in events:
                    event.set()


class Watch:
    """One follower's watch on a log folder; ``event`` is set when the log changes."""

    def __init__(self, watcher: LogWatcher, wd: int, event: asyncio.Event):
        self._watcher = watcher
        self._wd = wd
        self.event = event

    @property
    def has_inotify(self) -> bool:
        """False: nothing sets the event; the caller must poll every `POLL_INTERVAL_S`."""
        return self._wd >= 0

    def close(self) -> None:
        self._watcher.forget(self, self._wd)
