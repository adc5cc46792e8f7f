"""Folders that tasks have filled: removed and measured however deep they are."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from openpaisdk.fileio.remove_tree import remove_tree as remove_tree_at


def remove_tree(path: Path) -> None:
    """With all that is in it, as far as that can be. Links are not followed."""
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            remove_tree_at(fd, path.name)
        finally:
            os.close(fd)
    except FileNotFoundError:
        pass
    except OSError:
        # Something in it does not let itself be removed, or comes again: as much of the rest as can be.
        with contextlib.suppress(RecursionError):
            shutil.rmtree(path, ignore_errors=True)


def disk_usage(path: Path) -> int:
    """The bytes that it takes on disk. What lies so deep that it has no path is not counted."""
    total = 0
    waiting = [str(path)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for item in found:
                    if item.is_dir(follow_symlinks=False):
                        waiting.append(item.path)
                    else:
                        total += item.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total
