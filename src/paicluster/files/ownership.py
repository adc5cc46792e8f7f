"""Ownership of files (owner, group, mode), stored on the file itself, so that it moves with the file.

On the disk all files belong to the server's account. The owner, group and mode that clients see are in an
extended attribute. A file without one (an administrator copied it there, or the file system has no extended
attributes) gets its ownership from its path: below `/user/NAME` it belongs to NAME, below `/shared/TEAM` to
the team.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from functools import lru_cache
from typing import NamedTuple

from paicluster.files.errors import unsupported

ATTRIBUTE = "user.pai.record"
HOMES = "user"
TEAMS = "shared"
SUPERUSER = "admin"
SUPERGROUP = "supergroup"

STICKY = 0o1000
# Mode of a folder in which every user may create files, and remove only the own ones.
OPEN_MODE = 0o777 | STICKY
# Team folder: new files and folders get the group bits of their parent, whatever mode the client requests.
TEAM = 0o2000
MODE_BITS = 0o777 | STICKY | TEAM
# In memory only: the storage is read-only for all but administrators.
READ_ONLY = 0o10000

_NAME = re.compile(r"[\w.@$+-]{1,200}")
_NO_XATTR = (errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)


class Ownership(NamedTuple):
    """Owner, group and mode of a file or folder."""

    owner: str
    group: str
    mode: int


def is_valid_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def read_ownership(
    at: str, names: tuple[str, ...], status: os.stat_result, *, is_descriptor: bool = True
) -> Ownership:
    """Ownership of the file ``at`` a path on the disk; ``names`` is its client path.

    A descriptor's path under /proc is a link to the open file and is followed. Any other link is not.
    """
    try:
        return _parse(os.getxattr(at, ATTRIBUTE, follow_symlinks=is_descriptor))
    except OSError as error:
        if error.errno not in _NO_XATTR:
            raise
    except ValueError:
        # Not written by this server: treat it as absent.
        pass
    return default_ownership(names, stat.S_IMODE(status.st_mode) & 0o1777)


@lru_cache(maxsize=1000)
def _parse(text: bytes) -> Ownership:
    """Most files in a folder share their ownership: parsed once, one object for all of them."""
    owner, group, mode = text.decode().split(":")
    return Ownership(owner, group, int(mode, 8) & MODE_BITS)


def default_ownership(names: tuple[str, ...], mode: int) -> Ownership:
    if len(names) > 1 and names[0] == HOMES:
        return Ownership(names[1], names[1], mode)
    if len(names) > 1 and names[0] == TEAMS:
        return Ownership(SUPERUSER, names[1], mode)
    if not names:
        return Ownership(SUPERUSER, SUPERGROUP, 0o755)
    return Ownership(SUPERUSER, SUPERGROUP, mode)


def write_ownership(target: int | str, ownership: Ownership, *, has_xattrs: bool) -> None:
    """Store the ownership of an open file or path. Without extended attributes only the mode is stored."""
    if has_xattrs:
        os.setxattr(
            target, ATTRIBUTE, f"{ownership.owner}:{ownership.group}:{ownership.mode & MODE_BITS:o}".encode()
        )
        return
    # The server must keep access to every file, so its own permission bits stay set.
    extra = 0o700 if stat.S_ISDIR(os.stat(target).st_mode) else 0o600
    os.chmod(target, (ownership.mode & 0o1777) | extra)


def check_owner_change_supported(*, has_xattrs: bool) -> None:
    if not has_xattrs:
        raise unsupported("This storage cannot change owners: its file system has no extended attributes.")


def supports_xattrs(folder: int) -> bool:
    """Whether the file system of an open folder has extended attributes, tested by setting one."""
    try:
        os.setxattr(folder, ATTRIBUTE + ".probe", b"")
        os.removexattr(folder, ATTRIBUTE + ".probe")
    except OSError as error:
        if error.errno not in _NO_XATTR:
            raise
        return False
    return True
