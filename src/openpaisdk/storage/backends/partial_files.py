"""Files beside their targets, on this machine: what is on its way until it is whole.

Each is one writer's alone, as long as he has it open. Several copies to one place at the same time (by the
tasks of a job, say) write each to a file of its own, and the last one to end stays.
"""

from __future__ import annotations

import os
import secrets
import sys

from openpaisdk.storage.backends.base import MARK, part_name

if sys.platform != "win32":
    import fcntl

JOURNAL = ".done"
_BINARY = getattr(os, "O_BINARY", 0)
_FLAGS = os.O_RDWR | os.O_CREAT | _BINARY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


def open_partial(folder: str, name: str, key: str, mode: int) -> tuple[str, int]:
    """The path of a file for what is to be ``name``, and the file, ours alone.

    It is the one an interrupted copy of the same ``key`` left, unless somebody is at it.
    """
    while True:
        path = os.path.join(folder, part_name(name, key))
        fd = _locked(path, mode)
        if fd >= 0:
            return path, fd
        key = f"{key.partition('-')[0]}-{secrets.token_hex(4)}"


def list_partials(folder: str) -> list[str]:
    """What lies beside targets in a folder."""
    return [item for item in os.listdir(folder or ".") if item.removesuffix(JOURNAL).endswith(MARK)]


def remove_stale_partials(folder: str, name: str, keep: str, found: list[str]) -> None:
    """Unfinished copies of other contents to the same target: nobody will continue them."""
    front = part_name(name).removesuffix(MARK) + "."
    for item in found:
        bare = item.removesuffix(JOURNAL)
        if not item.startswith(front) or "." in bare[len(front) : -len(MARK)]:
            continue  # nothing of ours, or of a target whose name only begins like this one's
        path = os.path.join(folder, bare)
        if path != keep:
            drop(path)


def _locked(path: str, mode: int) -> int:
    """Open for writing, and made where it is not there; -1 while somebody else has it."""
    while True:
        try:
            fd = os.open(path, _FLAGS, mode)
        except PermissionError:
            if os.path.lexists(path):
                return -1  # another person's
            raise
        try:
            if _is_ours(fd, path):
                return fd
        except BlockingIOError:
            os.close(fd)
            return -1
        os.close(fd)


if sys.platform == "win32":

    def _is_ours(fd: int, path: str) -> bool:
        return True  # there, a file that somebody has open takes no other place

    def drop(path: str) -> None:
        """Remove what nobody writes to: what somebody has open cannot be removed there."""
        try:
            for each in (path, path + JOURNAL):
                _unlink(each)
        except PermissionError:
            pass

else:

    def _is_ours(fd: int, path: str) -> bool:
        """False where its last writer has put it in its place, or removed it, before we had it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            return True  # a disk without locks
        try:
            return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def drop(path: str) -> None:
        """Remove what nobody writes to."""
        fd = -1
        try:
            if os.path.exists(path):
                fd = _locked(path, 0o600)
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


__all__ = ["JOURNAL", "drop", "list_partials", "open_partial", "remove_stale_partials"]
