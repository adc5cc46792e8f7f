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


def remove(fd: int, name: str) -> None:
    """Remove what an open folder has by a name, with all that is in it. Links are not followed.

    Nothing recurses and two folders are open at most, so that no tree is too deep. When it is interrupted,
    what is left is still below the same name.
    """
    try:
        os.unlink(name, dir_fd=fd)
    except IsADirectoryError:
        _remove_folder(fd, name)


def _remove_folder(fd: int, name: str) -> None:
    top = os.open(name, _FOLDER, dir_fd=fd)
    try:
        waiting = _empty(top, top)
        while waiting:
            below = waiting.pop()
            folder = os.open(below, _FOLDER, dir_fd=top)
            try:
                waiting += _empty(folder, top)
            finally:
                os.close(folder)
            os.rmdir(below, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=fd)


def _empty(folder: int, top: int) -> list[str]:
    """Remove the files of a folder and bring its folders to the top; by these names they wait there."""
    with os.scandir(folder) as found:
        items = [(item.name, item.is_dir(follow_symlinks=False)) for item in found]
    waiting = []
    for name, is_folder in items:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        try:
            os.rmdir(name, dir_fd=folder)
            continue
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if folder != top:
            name, inner = secrets.token_hex(16), name
            os.rename(inner, name, src_dir_fd=folder, dst_dir_fd=top)
        waiting.append(name)
    return waiting
