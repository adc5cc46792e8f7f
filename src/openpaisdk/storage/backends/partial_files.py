"""Partial files of this machine: a file is written beside its target until it is complete.

A writer holds an exclusive lock on its partial file. Several simultaneous copies to one target (for example
by the tasks of a job) each write a partial file of their own; the last one to finish wins.
"""

from __future__ import annotations

import os
import sys

from openpaisdk.storage.backends.base import PARTIAL_SUFFIX, partial_name

if sys.platform != "win32":
    import fcntl

JOURNAL = ".done"
_BINARY = getattr(os, "O_BINARY", 0)
_FLAGS = os.O_RDWR | os.O_CREAT | _BINARY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


def open_partial(folder: str, name: str, key: str, mode: int) -> tuple[str, int]:
    """Path and locked descriptor of a partial file for the target ``name``.

    The partial file of an interrupted copy with the same ``key`` is reused unless another writer holds it.
    """
    while True:
        path = os.path.join(folder, partial_name(name, key))
        fd = _open_locked(path, mode)
        if fd >= 0:
            return path, fd
        key = f"{key.partition('-')[0]}-{os.urandom(4).hex()}"


def list_partials(folder: str) -> list[str]:
    """Names of the partial files in a folder."""
    return [item for item in os.listdir(folder or ".") if item.removesuffix(JOURNAL).endswith(PARTIAL_SUFFIX)]


def remove_stale_partials(folder: str, name: str, keep: str, candidates: list[str]) -> None:
    """Remove partial files of the same target with other contents: they will never be resumed."""
    prefix = partial_name(name).removesuffix(PARTIAL_SUFFIX) + "."
    for item in candidates:
        bare = item.removesuffix(JOURNAL)
        if not item.startswith(prefix) or "." in bare[len(prefix) : -len(PARTIAL_SUFFIX)]:
            continue  # not a partial file of ours, or of a target whose name only begins with this name
        path = os.path.join(folder, bare)
        if path != keep:
            remove_partial(path)


def _open_locked(path: str, mode: int) -> int:
    """Open a partial file, creating it if missing, and lock it; -1 while another writer holds it."""
    while True:
        try:
            fd = os.open(path, _FLAGS, mode)
        except PermissionError:
            if os.path.lexists(path):
                return -1  # owned by another user
            raise
        try:
            if _lock(fd, path):
                return fd
        except BlockingIOError:
            os.close(fd)
            return -1
        os.close(fd)


if sys.platform == "win32":

    def _lock(fd: int, path: str) -> bool:
        return True  # on Windows an open file cannot be renamed

    def remove_partial(path: str) -> None:
        """Remove a partial file and its journal, unless a writer has it open (then Windows refuses)."""
        try:
            for each in (path, path + JOURNAL):
                _unlink(each)
        except PermissionError:
            pass

else:

    def _lock(fd: int, path: str) -> bool:
        """Lock it. False if its last writer renamed it to the target, or removed it, before the lock."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            return True  # a file system without locks
        try:
            return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def remove_partial(path: str) -> None:
        """Remove a partial file and its journal, unless a writer holds its lock."""
        fd = -1
        try:
            if os.path.exists(path):
                fd = _open_locked(path, 0o600)
                if fd < 0:
                    return
            for each in (path, path + JOURNAL):
                _unlink(each)
        finally:
            if fd >= 0:
                os.close(fd)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


__all__ = ["JOURNAL", "list_partials", "open_partial", "remove_partial", "remove_stale_partials"]
