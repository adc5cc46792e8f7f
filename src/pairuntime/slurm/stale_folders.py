"""Stale folders: left on a node by a killed job, removed by the next job of the same account there."""

import fcntl
import os
import shutil
import stat

from pairuntime.slurm.node import LOCK_FILE, host_name

PREFIX = "pai-"


def remove(root: "str") -> "None":
    """Remove a folder. The lock file goes last, so that an interrupted removal can be repeated."""
    for name in os.listdir(root):
        path = os.path.join(root, name)
        if os.path.isdir(path) and not os.path.islink(path):
            _make_writable(path)
            shutil.rmtree(path)
        elif name != LOCK_FILE:
            os.unlink(path)
    shutil.rmtree(root)


def remove_stale(folder: "str") -> "None":
    """Remove this account's folders in there that no process has locked any more."""
    try:
        names = os.listdir(folder)
    except OSError:  # not readable
        return
    for name in names:
        if name.startswith(PREFIX):
            path = os.path.join(folder, name)
            try:
                if _is_stale(path):
                    remove(path)
            except OSError:
                pass


def _make_writable(root: "str") -> "None":
    """Make folders writable: some programs leave folders that even their owner cannot write to."""
    for path, folders, _ in os.walk(root):
        for entry in (path, *(os.path.join(path, name) for name in folders)):
            if not os.path.islink(entry):
                try:
                    os.chmod(entry, 0o700)
                except OSError:
                    pass


def _is_stale(path: "str") -> "bool":
    """Whether a folder is stale; OSError where that is unknown, as while the folder is being created."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    fd = os.open(os.path.join(path, LOCK_FILE), os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if os.read(fd, 256) != host_name():
            return False  # not on a disk of this node: locks may be invisible here
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
