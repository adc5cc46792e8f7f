"""Removing a tree, however deep it is: folders in folders are brought up to its top, and emptied there.

Not on Windows, where no folder is reached but by its path.
"""

from __future__ import annotations

import errno
import os
import secrets
import sys

assert sys.platform != "win32"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
# Whoever has just looked for it may still put things into it; nobody goes on with that for long.
_TRIES = 100


def remove_tree(fd: int, name: str) -> None:
    """Remove what an open folder has by a name, with all that is in it. Links are not followed.

    Nothing recurses and two folders are open at most, so that no tree is too deep. When it is interrupted,
    what is left is still below the same name.
    """
    try:
        os.unlink(name, dir_fd=fd)
    except IsADirectoryError:
        remove_folder(fd, name)


def remove_folder(fd: int, name: str) -> None:
    """The same, of what is known to be a folder."""
    top = os.open(name, _FOLDER, dir_fd=fd)
    try:
        for _ in range(_TRIES):
            _empty_all(top)
            if _is_gone(name, fd):
                return
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=fd)


def _empty_all(top: int) -> None:
    waiting = _empty(top, top)
    while waiting:
        below = waiting.pop()
        folder = os.open(below, _FOLDER, dir_fd=top)
        try:
            waiting += _empty(folder, top)
        finally:
            os.close(folder)
        _is_gone(below, top)


def _is_gone(name: str, fd: int) -> bool:
    """Whether an emptied folder could be removed, or somebody had put something into it."""
    try:
        os.rmdir(name, dir_fd=fd)
    except OSError as error:
        if error.errno not in _NOT_EMPTY:
            raise
        return False
    return True


def _empty(folder: int, top: int) -> list[str]:
    """Remove the files of a folder and bring its folders to the top; by these names they wait there."""
    with os.scandir(folder) as found:
        items = [(item.name, item.is_dir(follow_symlinks=False)) for item in found]
    waiting = []
    for name, is_folder in items:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        if _is_gone(name, folder):
            continue
        if folder != top:
            name, inner = secrets.token_hex(16), name
            os.rename(inner, name, src_dir_fd=folder, dst_dir_fd=top)
        waiting.append(name)
    return waiting
