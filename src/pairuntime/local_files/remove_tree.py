"""Removal of directory trees of any depth: nested folders are renamed into the top folder and emptied there.

``shutil.rmtree`` recurses and needs as many open files as the tree is deep (no released Python removes trees
of any depth). Not for Windows, which has no calls relative to an open folder.
"""

import errno
import os
import secrets
import sys

assert sys.platform != "win32"

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
# A process that opened the tree before may still create files in it, but not for long.
_MAX_ATTEMPTS = 100


def remove_tree(fd: "int", name: "str") -> "None":
    """Remove a file or a folder with its contents, by name in an open folder. Links are not followed.

    Nothing recurses and at most two folders are open, so no tree is too deep. After an interruption,
    everything that is left is still below the same name.
    """
    try:
        os.unlink(name, dir_fd=fd)
    except IsADirectoryError:
        remove_folder(fd, name)


def remove_folder(fd: "int", name: "str") -> "None":
    """``remove_tree`` of a name that is known to be a folder."""
    top = os.open(name, _OPEN_FOLDER, dir_fd=fd)
    try:
        for _ in range(_MAX_ATTEMPTS):
            _empty_all(top)
            if _try_rmdir(name, fd):
                return
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=fd)


def _empty_all(top: "int") -> "None":
    pending = _empty(top, top)
    while pending:
        name = pending.pop()
        folder = os.open(name, _OPEN_FOLDER, dir_fd=top)
        try:
            pending += _empty(folder, top)
        finally:
            os.close(folder)
        _try_rmdir(name, top)


def _try_rmdir(name: "str", fd: "int") -> "bool":
    """Remove an emptied folder; False when another process has created something in it."""
    try:
        os.rmdir(name, dir_fd=fd)
    except OSError as error:
        if error.errno not in _NOT_EMPTY:
            raise
        return False
    return True


def _empty(folder: "int", top: "int") -> "list[str]":
    """Remove the files of a folder and move its non-empty folders to the top; their names there."""
    with os.scandir(folder) as entries:
        items = [(item.name, item.is_dir(follow_symlinks=False)) for item in entries]
    pending = []
    for name, is_folder in items:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        if _try_rmdir(name, folder):
            continue
        if folder != top:
            name, inner = secrets.token_hex(16), name
            os.rename(inner, name, src_dir_fd=folder, dst_dir_fd=top)
        pending.append(name)
    return pending
