"""Wakes readers when a log folder changes: by inotify where it works, else they poll.

Readers at the same place of one log, as when a whole team has its page open, share what the first one reads.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from paicluster.logs.reader import STREAMS, Chunk, LogReader, Stream
from paicluster.logs.stallable_reads import LONG_TIMEOUT_S, StallableReads
from pairuntime.local_files.network_fs import is_on_network

T = TypeVar("T")

_MODIFY = 0x2
_CREATE = 0x100
_DELETE = 0x200
_MOVED_TO = 0x80
_NONBLOCK = os.O_NONBLOCK
_CLOEXEC = os.O_CLOEXEC
_EVENT = struct.Struct("iIII")

_STREAM_OF: dict[bytes, Stream] = {stream.encode(): stream for stream in STREAMS}

# Polling interval where inotify cannot be used: a full watch table, a network file system.
POLL_INTERVAL_S = 0.25

# Limit of the bytes in flight to all followers together: slow ones would otherwise fill the memory.
_MAX_IN_FLIGHT = 16 << 20
_MIN_CHUNK, _MAX_CHUNK = 16 << 10, 256 << 10
# What the readers of a log share: the newest output, and that there is no more.
_SHARED_CHUNKS = 2


@dataclass(slots=True)
class _WatchedLog:
    """One stream of a watched folder."""

    events: set[asyncio.Event] = field(default_factory=set)
    chunks: dict[tuple[int, int], Chunk] = field(default_factory=dict)
    """By offset and limit, what was read since the last change."""

    def notify_change(self) -> None:
        self.chunks.clear()
        for event in self.events:
            event.set()


class LogWatcher:
    """One inotify descriptor for all followers of the server."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        self._watched: dict[int, dict[Stream, _WatchedLog]] = {}
        self._started = False
        self._open: set[Watch] = set()
        self.stallable_reads = StallableReads()

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

    async def run(self, read: Callable[[], T], *, may_stall: bool) -> T:
        """The result of a read in a thread; of a folder that may not answer in one of its own.

        The read may take long, as that of a whole log.
        """
        if may_stall:
            return await self.stallable_reads.run(read, timeout_s=LONG_TIMEOUT_S)
        return await asyncio.to_thread(read)

    def watch(self, folder: Path, stream: Stream, *, may_stall: bool = False) -> Watch:
        """``may_stall``: the folder may not answer, so it is not looked at here, and has no inotify."""
        if not self._started and self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._read)
            self._started = True
        wd = -1
        if self._fd >= 0 and not may_stall and not is_on_network(folder):
            mask = _MODIFY | _CREATE | _DELETE | _MOVED_TO
            # The kernel returns the same descriptor for the same folder.
            wd = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), mask)
        log = None
        if wd >= 0:
            log = self._watched.setdefault(wd, {}).setdefault(stream, _WatchedLog())
        watch = Watch(self, wd, stream, log, may_stall=may_stall)
        if log is not None:
            log.events.add(watch.event)
        self._open.add(watch)
        return watch

    def forget(self, watch: Watch, wd: int, stream: Stream) -> None:
        if watch not in self._open:
            return
        self._open.remove(watch)
        if wd < 0:
            return
        logs = self._watched[wd]
        logs[stream].events.discard(watch.event)
        if not logs[stream].events:
            del logs[stream]
        if not logs:
            del self._watched[wd]
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
            if wd < 0:
                # The kernel's event queue overflowed, so any folder may have changed.
                for logs in self._watched.values():
                    for log in logs.values():
                        log.notify_change()
                continue
            # State files of the task lie beside the log: they wake no reader.
            stream = _STREAM_OF.get(name.partition(b".")[0])
            changed = self._watched.get(wd, {}).get(stream) if stream is not None else None
            if changed is not None:
                changed.notify_change()


class Watch:
    """One follower's watch on a log; ``event`` is set when the log changes."""

    def __init__(
        self, watcher: LogWatcher, wd: int, stream: Stream, log: _WatchedLog | None, *, may_stall: bool
    ):
        self._watcher = watcher
        self._may_stall = may_stall
        self._wd = wd
        self._stream: Stream = stream
        self._log = log
        self.event = asyncio.Event()

    @property
    def has_inotify(self) -> bool:
        """False: nothing sets the event; the caller must poll every `POLL_INTERVAL_S`."""
        return self._log is not None

    async def next_chunk(self, log: LogReader, offset: int, *, is_complete: bool) -> Chunk:
        """See `read`; Unavailable if the folder does not answer."""
        if not self._may_stall:
            return self.read(log, offset, is_complete=is_complete)
        limit = self._watcher.chunk_size
        return await self._watcher.stallable_reads.run(lambda: log.read(offset, limit))

    def read(self, log: LogReader, offset: int, *, is_complete: bool) -> Chunk:
        """The next bytes of the log, as of the last change that was noticed.

        ``is_complete``: the task has ended. Its last bytes are in the log, but may not have been noticed.
        """
        limit = self._watcher.chunk_size
        if self._log is None or is_complete:
            return log.read(offset, limit)
        chunks = self._log.chunks
        chunk = chunks.get((offset, limit))
        if chunk is None:
            while len(chunks) >= _SHARED_CHUNKS:
                del chunks[next(iter(chunks))]
            chunk = chunks[offset, limit] = log.read(offset, limit)
        return chunk

    def close(self) -> None:
        self._watcher.forget(self, self._wd, self._stream)
