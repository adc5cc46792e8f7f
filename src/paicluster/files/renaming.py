"""Renaming that never replaces: one system call where the kernel and the disk have it."""

from __future__ import annotations

import ctypes
import errno
import os

_NOREPLACE = 1
# Not known to the kernel, or not to the disk (network file systems).
_NOT_KNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)

_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)


def rename_noreplace(source_fd: int, source: str, target_fd: int, target: str) -> None:
    """Rename, or FileExistsError when there is something by that name already."""
    if _renameat2 is not None:
        if not _renameat2(source_fd, os.fsencode(source), target_fd, os.fsencode(target), _NOREPLACE):
            return
        code = ctypes.get_errno()
        if code not in _NOT_KNOWN:
            raise OSError(code, os.strerror(code))
    try:
        os.stat(target, dir_fd=target_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
