"""Wakes readers when a log folder changes: inotify where it works, else a slow look."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from functools import cache
from pathlib import Path

from paicluster.logs.reader import STREAMS

_MODIFY = 0x2
_CREATE = 0x100
_DELETE = 0x200
_MOVED_TO = 0x80
_NONBLOCK = os.O_NONBLOCK
_CLOEXEC = os.O_CLOEXEC
_EVENT = struct.Struct("iIII")

_LOGS = tuple(f"{stream}.".encode() for stream in STREAMS)

# Where inotify cannot see (a full watch table, a network file system), look this often.
SLOW_LOOK_S = 0.25

# What all followers together may have under way: those who are slow would otherwise fill our memory.
_UNDER_WAY = 16 << 20
_LEAST, _MOST = 16 << 10, 256 << 10

# Here others write, on machines whose doings this kernel does not see, though it takes the watch.
_SHARED = (
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "cifs",
    "smb",
    "fuse",
    "9p",
    "gluster",
    "afs",
    "pvfs",
    "weka",
)


def is_shared(folder: Path) -> bool:
    """Whether other machines may write there: what they do is seen late, and told of by nobody."""
    try:
        device = folder.stat().st_dev
    except OSError:
        return False
    return _kind(device).startswith(_SHARED)


@cache
def _kind(device: int) -> str:
    """The type of the file system on that device; empty when it is not mounted by itself."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == number:
            return right.split()[0]
    return ""


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
        """How many bytes one follower may take at once; the more there are, the fewer."""
        return max(_LEAST, min(_MOST, _UNDER_WAY // max(1, len(self._open))))

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
        if self._fd >= 0 and not is_shared(folder):
            mask = _MODIFY | _CREATE | _DELETE | _MOVED_TO
            # The kernel gives the same number for the same folder.
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
            # Beside the log lie files by which others tell how the task is: they wake no reader.
            if wd >= 0 and not name.startswith(_LOGS):
                continue
            # -1: more happened than the kernel could note. Then it may concern anybody.
            waiters = [self._waiters.get(wd, set())] if wd >= 0 else list(self._waiters.values())
            for events in waiters:
                for event in events:
                    event.set()


class Watch:
    def __init__(self, growth: LogWatcher, wd: int, event: asyncio.Event):
        self._growth = growth
        self._wd = wd
        self.event = event

    @property
    def has_inotify(self) -> bool:
        """False: nothing will set the event, the caller must look by itself every `SLOW_LOOK_S`."""
        return self._wd >= 0

    def close(self) -> None:
        self._growth.forget(self, self._wd)
