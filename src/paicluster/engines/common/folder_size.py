"""Removal and disk usage of task folders, however deep they are."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from pairuntime.local_files.remove_tree import remove_tree as remove_tree_at


def remove_tree(path: Path) -> None:
    """Remove a folder with its content, as far as possible. Links are not followed."""
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            remove_tree_at(fd, path.name)
        finally:
            os.close(fd)
    except FileNotFoundError:
        pass
    except OSError:
        # Something in it cannot be removed, or is created again: remove as much of the rest as possible.
        with contextlib.suppress(RecursionError):
            shutil.rmtree(path, ignore_errors=True)


def remove_leftover(path: Path) -> None:
    """Remove what an earlier launch left in a folder that the task could write to, with any content.

    FileExistsError: something of it cannot be removed, and nothing may be created below it.
    """
    remove_tree(path)
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "something there cannot be removed", str(path))


def disk_usage(path: Path) -> int:
    """Bytes on disk. Files too deep to have a path are not counted."""
    total = 0
    pending = [str(path)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for item in entries:
                    if item.is_dir(follow_symlinks=False):
                        pending.append(item.path)
                    else:
                        total += item.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total
