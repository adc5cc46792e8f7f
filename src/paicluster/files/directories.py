"""Folder creation, and the checks of who may add, move or remove what."""

from __future__ import annotations

import os
import threading

from paicluster.files.errors import exists, no_file, not_a_folder, not_allowed
from paicluster.files.namespace import Inode, Namespace, PathLookup
from paicluster.files.ownership import (
    HOMES,
    OPEN_MODE,
    READ_ONLY,
    SUPERGROUP,
    SUPERUSER,
    TEAM,
    TEAMS,
    Ownership,
    is_valid_name,
)
from paicluster.files.paths import Names, join_path
from paicluster.files.permissions import Access, StorageUser, can_remove

FOLDER_MODE = 0o755
FILE_MODE = 0o644

# World-writable folders: legacy clients write there without creating them first. Programs look for the first;
# the others are created on first use.
_SCRATCH = "tmp"
_PUBLIC = (_SCRATCH, "Output", "openpai-sdk")
_PUBLIC_OWNERSHIP = Ownership(SUPERUSER, SUPERGROUP, OPEN_MODE)
# A user with one of these names has a home folder, but no folder of that name in the root.
_RESERVED = frozenset((HOMES, TEAMS, *_PUBLIC))
# A thread that loses the race to create a folder must see the new folder with its ownership set. A few locks
# serve all folders.
_MKDIR_LOCKS = [threading.Lock() for _ in range(64)]


def check_may_add(namespace: Namespace, folder: Inode, name: str, user: StorageUser) -> None:
    """Adding needs WRITE on the folder; in the root each user may create a folder of the same name."""
    if _is_writable_root(folder) and (name in _PUBLIC or _is_own_folder(namespace, name, user)):
        return
    folder.check_access(user, Access.WRITE)


def check_may_move(namespace: Namespace, folder: Inode, inode: Inode, user: StorageUser) -> None:
    is_owner = _is_writable_root(folder) and inode.ownership.owner == user.name
    if is_owner and _is_own_folder(namespace, inode.names[0], user):
        return
    folder.check_access(user, Access.WRITE)


def check_name_is_free(folder: Inode, name: str, user: StorageUser) -> None:
    """Raise if the storage itself uses this name of the root, unless the user is an administrator."""
    if not folder.names and name in _RESERVED and not user.admin:
        raise not_allowed(f"Permission denied: user={user.name}, /{name} is a folder of the storage")


def _is_writable_root(folder: Inode) -> bool:
    return not folder.names and not folder.ownership.mode & READ_ONLY


def _is_own_folder(namespace: Namespace, name: str, user: StorageUser) -> bool:
    return namespace.has_xattrs and name == user.name and name not in _RESERVED


def check_removable(user: StorageUser, folder: Inode, inode: Inode) -> None:
    if inode.names in ((HOMES,), (TEAMS,)):
        # Not even by an administrator (in single-user mode the user is one): job outputs would have no
        # folder.
        raise not_allowed(
            f"{join_path(inode.names)} holds the folders of all users or groups and cannot be removed. "
            "Its contents can be removed."
        )
    check_may_remove(user, folder, inode.names[-1], inode.ownership)


def check_may_remove(user: StorageUser, folder: Inode, name: str, ownership: Ownership) -> None:
    if not can_remove(user, folder.ownership, ownership):
        path = join_path((*folder.names, name))
        raise not_allowed(
            f"Permission denied by sticky bit: user={user.name}, path={path}, owner={ownership.owner}"
        )


def inherit_ownership(folder: Ownership, user: StorageUser, mode: int, *, is_folder: bool) -> Ownership:
    """Ownership of a new file or folder: the parent's group, and in a team folder the team's permissions."""
    mode &= 0o1777 if is_folder else 0o777
    if folder.mode & TEAM:
        rights = folder.mode & (0o070 if is_folder else 0o060)
        mode = (mode & ~0o070) | rights | (TEAM if is_folder else 0)
    return Ownership(user.name, folder.group, mode)


def make_folders(
    namespace: Namespace, lookup: PathLookup, names: Names, user: StorageUser, mode: int
) -> Inode:
    """Create ``names`` below the last existing folder of a lookup. The caller closes the new inode's fd."""
    folder = lookup.parent_inode
    if folder is None:
        raise no_file(lookup.path)
    if not folder.is_folder:
        raise not_a_folder(folder.path)
    check_may_add(namespace, folder, names[0], user)
    open_fd = -1
    try:
        for left, name in enumerate(names, 1 - len(names)):
            folder = _make_folder(namespace, folder, name, user, mode if left == 0 else mode | 0o300)
            if open_fd >= 0:
                os.close(open_fd)
            open_fd = folder.fd
    except BaseException:
        if open_fd >= 0:
            os.close(open_fd)
        raise
    return folder


def _make_folder(namespace: Namespace, folder: Inode, name: str, user: StorageUser, mode: int) -> Inode:
    path = join_path((*folder.names, name))
    with _MKDIR_LOCKS[folder.status.st_ino % len(_MKDIR_LOCKS)]:
        new = True
        try:
            os.mkdir(name, 0o700, dir_fd=folder.fd)
        except FileExistsError:
            new = False
        inode = namespace.child(folder, name)
        if inode is None:
            raise exists(path)
        if not inode.is_folder:
            os.close(inode.fd)
            raise not_a_folder(path)
        try:
            if new:
                namespace.set_ownership(inode, _ownership_of_new_folder(folder, name, user, mode))
            else:
                # Another user created it first, and may not permit access to it.
                inode.check_access(user, Access.WRITE | Access.EXECUTE)
        except BaseException:
            os.close(inode.fd)
            raise
    return inode


def _ownership_of_new_folder(folder: Inode, name: str, user: StorageUser, mode: int) -> Ownership:
    if not folder.names and name == user.name and name not in _RESERVED:
        return Ownership(user.name, user.name, 0o700)
    if not folder.names and name in _PUBLIC:
        return _PUBLIC_OWNERSHIP
    return inherit_ownership(folder.ownership, user, mode, is_folder=True)


def create_home(namespace: Namespace, user: StorageUser) -> None:
    """Create `/tmp`, the user's home folder and those of the user's groups where they do not exist."""
    _ensure_folder(namespace, (_SCRATCH,), _PUBLIC_OWNERSHIP)
    _ensure_folder(namespace, (HOMES, user.name), Ownership(user.name, user.name, 0o700))
    for group in user.groups:
        _ensure_folder(namespace, (TEAMS, group), Ownership(SUPERUSER, group, 0o770 | TEAM))


def _ensure_folder(namespace: Namespace, names: Names, ownership: Ownership) -> None:
    if not is_valid_name(names[-1]) or names[-1] in (".", ".."):
        return
    root = StorageUser(SUPERUSER, admin=True)
    with namespace.look_up(join_path(names), root) as lookup:
        if lookup.inode is None:
            inode = make_folders(namespace, lookup, lookup.missing, root, FOLDER_MODE)
            try:
                namespace.set_ownership(inode, ownership)
            finally:
                os.close(inode.fd)
