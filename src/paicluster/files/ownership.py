"""Whose a file is and who may use it: kept on the file itself, so that it moves and goes with it.

On the disk everything belongs to the account of the server. The owner, the group and the mode that clients
see lie in an extended attribute. What has none (something an administrator put there by hand, or a disk that
knows no attributes) belongs to whoever owns the place: below `/user/NAME` to NAME, below `/shared/TEAM` to
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
# In a team's folder new things have the group's bits of their folder, whatever the client asked for.
TEAM = 0o2000
MODE_BITS = 0o777 | STICKY | TEAM
# In memory only: the whole storage is one that nobody but administrators changes.
READ_ONLY = 0o10000

_NAME = re.compile(r"[\w.@$+-]{1,200}")
_NOT_THERE = (errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)


class Ownership(NamedTuple):
    owner: str
    group: str
    mode: int


def good_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def read(at: str, names: tuple[str, ...], status: os.stat_result, *, is_descriptor: bool = True) -> Ownership:
    """The record of what lies ``at`` a path of the disk; ``names`` is where clients see it.

    The path of a descriptor is a link to what is open. Any other link is not followed.
    """
    try:
        return _parsed(os.getxattr(at, ATTRIBUTE, follow_symlinks=is_descriptor))
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
    except ValueError:
        # Not written by us: as if it were not there.
        pass
    return default_ownership(names, stat.S_IMODE(status.st_mode) & 0o1777)


@lru_cache(maxsize=1000)
def _parsed(text: bytes) -> Ownership:
    """Most files of a folder have the same: read once, and one object for all of them."""
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


def write(target: int | str, record: Ownership, *, keeps: bool) -> None:
    """Put a record on an open file or a path. ``keeps`` tells whether the disk knows attributes at all."""
    if keeps:
        os.setxattr(target, ATTRIBUTE, f"{record.owner}:{record.group}:{record.mode & MODE_BITS:o}".encode())
        return
    # The server itself must get at everything, so its own bits stay.
    extra = 0o700 if stat.S_ISDIR(os.stat(target).st_mode) else 0o600
    os.chmod(target, (record.mode & 0o1777) | extra)


def refuse_owner(*, keeps: bool) -> None:
    if not keeps:
        raise unsupported("The disk of this storage keeps no owners: it has no extended attributes.")


def disk_keeps_records(folder: int) -> bool:
    """Whether the disk below an open folder has extended attributes; found out by trying."""
    try:
        os.setxattr(folder, ATTRIBUTE + ".probe", b"")
        os.removexattr(folder, ATTRIBUTE + ".probe")
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return False
    return True
