"""Who asks, and what the bits of a mode allow him. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from paicluster.files.ownership import READ_ONLY, STICKY, SUPERGROUP, TEAM, Ownership


class Access(enum.IntFlag):
    """What somebody wants to do with a thing: the three bits of a mode."""

    NOTHING = 0
    EXECUTE = 1
    WRITE = 2
    READ = 4

    @property
    def symbol(self) -> str:
        return bits(self)

    @property
    def word(self) -> str:
        """As Hadoop names it in its refusals."""
        return _WORDS[int(self)]


_WORDS = ("NONE", "EXECUTE", "WRITE", "WRITE_EXECUTE", "READ", "READ_EXECUTE", "READ_WRITE", "ALL")


@dataclass(frozen=True, slots=True)
class StorageUser:
    """A user with the groups he is in. An administrator may do everything."""

    name: str
    groups: frozenset[str] = frozenset()
    admin: bool = False

    def is_in(self, group: str) -> bool:
        """Everybody also has a group of his own name, unless that is the name of the storage's own."""
        return group in self.groups or (group == self.name and group != SUPERGROUP)


def allowed(who: StorageUser, record: Ownership, need: Access) -> bool:
    """The owner's bits for the owner, the group's for the group, the others' for everybody else."""
    if who.admin:
        return True
    if record.mode & READ_ONLY and need & Access.WRITE:
        return False
    if record.owner == who.name:
        has = record.mode >> 6
    elif record.group in who.groups or (not record.mode & TEAM and who.is_in(record.group)):
        # A team's folder may be older than a user who is called like the team: he is not in it for that.
        has = record.mode >> 3
    else:
        has = record.mode
    return has & need == need


def may_remove(who: StorageUser, folder: Ownership, thing: Ownership) -> bool:
    """In a sticky folder everybody may write, and remove only what is his own."""
    return who.admin or not folder.mode & STICKY or who.name in (folder.owner, thing.owner)


def bits(mode: int) -> str:
    return "".join(letter if mode & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))


def described(record: Ownership, *, folder: bool) -> str:
    """`alice:staff:drwxr-x---`, as Hadoop describes a thing in its refusals."""
    mode = record.mode
    text = bits(mode >> 6) + bits(mode >> 3) + bits(mode)
    if mode & STICKY:
        text = text[:-1] + ("t" if mode & 1 else "T")
    return f"{record.owner}:{record.group}:{'d' if folder else '-'}{text}"
