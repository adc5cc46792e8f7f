"""Folders that a killed job left on a node, with nobody to remove them: the account's next job there does."""

import fcntl
import os
import shutil
import stat

PREFIX = "pai-"
_HELD = "held"


def hold(root: "str") -> "None":
    """The folder is in use for as long as this process or a copy of it lives; programs do not inherit it."""
    aside = os.path.join(root, "%s.%d" % (_HELD, os.getpid()))
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        pass  # no locks here: nobody can tell then, and it stays
    os.rename(aside, os.path.join(root, _HELD))


def remove(folder: "str") -> "None":
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
                    shutil.rmtree(path, ignore_errors=True)
            except OSError:
                pass


def _is_abandoned(path: "str") -> "bool":
    """OSError where that cannot be told, as of one that is just being made."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    fd = os.open(os.path.join(path, _HELD), os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
