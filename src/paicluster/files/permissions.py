"""POSIX permission checks over users and ownership. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from paicluster.files.ownership import READ_ONLY, STICKY, SUPERGROUP, TEAM, Ownership


class Access(enum.IntFlag):
    """Requested access: the three permission bits of a mode."""

    NONE = 0
    EXECUTE = 1
    WRITE = 2
    READ = 4

    @property
    def symbol(self) -> str:
        return rwx(self)

    @property
    def hadoop_name(self) -> str:
        """Hadoop's name for it in its error messages."""
        return _HADOOP_NAMES[int(self)]


_HADOOP_NAMES = ("NONE", "EXECUTE", "WRITE", "WRITE_EXECUTE", "READ", "READ_EXECUTE", "READ_WRITE", "ALL")


@dataclass(frozen=True, slots=True)
class StorageUser:
    """A user and the user's groups. An administrator has every permission."""

    name: str
    groups: frozenset[str] = frozenset()
    admin: bool = False

    def is_in(self, group: str) -> bool:
        """Each user also has a group of the same name, except for the storage's supergroup."""
        return group in self.groups or (group == self.name and group != SUPERGROUP)


def is_allowed(user: StorageUser, ownership: Ownership, access: Access) -> bool:
    """The owner bits apply to the owner, the group bits to the group, the other bits to all others."""
    if user.admin:
        return True
    if ownership.mode & READ_ONLY and access & Access.WRITE:
        return False
    if ownership.owner == user.name:
        granted = ownership.mode >> 6
    elif ownership.group in user.groups or (not ownership.mode & TEAM and user.is_in(ownership.group)):
        # A team folder may be older than a user with the team's name: the name alone makes no member.
        granted = ownership.mode >> 3
    else:
        granted = ownership.mode
    return granted & access == access


def can_remove(user: StorageUser, folder: Ownership, target: Ownership) -> bool:
    """In a sticky folder each user may remove only that user's own files."""
    return user.admin or not folder.mode & STICKY or user.name in (folder.owner, target.owner)


def rwx(mode: int) -> str:
    return "".join(letter if mode & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))


def hadoop_description(ownership: Ownership, *, is_folder: bool) -> str:
    """`alice:staff:drwxr-x---`, as Hadoop describes an inode in its error messages."""
    mode = ownership.mode
    text = rwx(mode >> 6) + rwx(mode >> 3) + rwx(mode)
    if mode & STICKY:
        text = text[:-1] + ("t" if mode & 1 else "T")
    return f"{ownership.owner}:{ownership.group}:{'d' if is_folder else '-'}{text}"
