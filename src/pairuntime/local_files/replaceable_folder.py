"""Folders in whose place another account may put something else, such as a link to another folder."""

import os
import stat


def is_replaceable(folder: "str") -> "bool":
    """Whether every account may put another folder, or a link, in the place of this one."""
    own, parent = os.lstat(folder), os.stat(os.path.dirname(folder))
    is_sticky = parent.st_mode & stat.S_ISVTX and own.st_uid in (0, os.geteuid())
    return bool(parent.st_mode & stat.S_IWOTH) and not is_sticky
