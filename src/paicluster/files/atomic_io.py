"""Low-level file writes: complete appends, and a rename that never replaces its target."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Iterator

from paiprotocol.transfer.ranges import MAX_WRITE_BYTES

# Buffers per writev call: the kernel's limit.
_IOV_MAX = 1024

_RENAME_NOREPLACE = 1
# The kernel or the file system (a network file system) does not support renameat2.
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)

_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)


def append(fd: int, data: bytes | memoryview) -> None:
    """Write all of ``data`` at the file's current position."""
    done = os.write(fd, data) if len(data) <= MAX_WRITE_BYTES else 0
    if done < len(data):
        append_all(fd, (memoryview(data)[done:],))


def append_all(fd: int, parts: Iterable[bytes | bytearray | memoryview]) -> None:
    """Write all parts at the file's current position."""
    for group in _groups(parts):
        written = os.writev(fd, group)
        if written < sum(map(len, group)):  # the disk is nearly full, or a signal interrupted the call
            remaining = memoryview(b"".join(group))[written:]
            while remaining:
                remaining = remaining[os.write(fd, remaining) :]


def _groups(parts: Iterable[bytes | bytearray | memoryview]) -> Iterator[list[memoryview]]:
    """The same bytes in groups of `MAX_WRITE_BYTES` bytes: large parts are split, small ones combined."""
    group: list[memoryview] = []
    remaining = MAX_WRITE_BYTES
    for part in parts:
        view = memoryview(part)
        while view:
            group.append(view[:remaining])
            view, remaining = view[remaining:], remaining - len(group[-1])
            if not remaining or len(group) == _IOV_MAX:
                yield group
                group, remaining = [], MAX_WRITE_BYTES
    if group:
        yield group


def rename_noreplace(source_fd: int, source: str, target_fd: int, target: str) -> None:
    """Rename; FileExistsError if the target exists. One system call where kernel and disk support it."""
    if _renameat2 is not None:
        if not _renameat2(source_fd, os.fsencode(source), target_fd, os.fsencode(target), _RENAME_NOREPLACE):
            return
        code = ctypes.get_errno()
        if code not in _UNSUPPORTED:
            raise OSError(code, os.strerror(code))
    try:
        os.stat(target, dir_fd=target_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
