"""Folders that a killed job left on a node, with nobody to remove them: the account's next job there does."""

import fcntl
import os
import shutil
import stat

from pairuntime.slurm.bootstrap import HELD, node

PREFIX = "pai-"


def remove(root: "str") -> "None":
    """A folder of ours with all that is in it. Should that be cut short, the mark is still there."""
    for name in os.listdir(root):
        path = os.path.join(root, name)
        if os.path.isdir(path) and not os.path.islink(path):
            _open_all(path)
            shutil.rmtree(path)
        elif name != HELD:
            os.unlink(path)
    shutil.rmtree(root)


def remove_abandoned(folder: "str") -> "None":
    """What is ours in there, was held, and is not any more."""
    try:
        names = os.listdir(folder)
    except OSError:  # others may have closed it
        return
    for name in names:
        if name.startswith(PREFIX):
            path = os.path.join(folder, name)
            try:
                if _is_abandoned(path):
                    remove(path)
            except OSError:
                pass


def _open_all(root: "str") -> "None":
    """Some programs leave folders that even their owner cannot write to."""
    for path, folders, _ in os.walk(root):
        for one in (path, *(os.path.join(path, name) for name in folders)):
            if not os.path.islink(one):
                try:
                    os.chmod(one, 0o700)
                except OSError:
                    pass


def _is_abandoned(path: "str") -> "bool":
    """OSError where that cannot be told, as of one that is just being made."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    fd = os.open(os.path.join(path, HELD), os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if os.read(fd, 256) != node():
            return False  # not on a disk of this node: locks may not be seen from here
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
