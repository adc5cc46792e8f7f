"""Making folders, and who may put things where."""

from __future__ import annotations

import os
import threading

from paicluster.files.errors import exists, no_file, not_a_folder, not_allowed
from paicluster.files.namespace import Inode, Namespace, PathLookup
from paicluster.files.ownership import (
    HOMES,
    READ_ONLY,
    SUPERGROUP,
    SUPERUSER,
    TEAM,
    TEAMS,
    Ownership,
    good_name,
)
from paicluster.files.paths import Names, text_of
from paicluster.files.permissions import Access, StorageUser, may_remove

FOLDER_MODE = 0o755
FILE_MODE = 0o644

# Where everybody may leave things: old clients write there without asking. Made when first used.
_PUBLIC = ("tmp", "Output", "openpai-sdk")
_PUBLIC_RECORD = Ownership(SUPERUSER, SUPERGROUP, 0o1777)
# A user who is called like one of these has a home, and no folder of his name in the root.
_RESERVED = frozenset((HOMES, TEAMS, *_PUBLIC))
# Whoever finds that somebody else was faster must find the new folder with its record. A few serve all.
_MAKING = [threading.Lock() for _ in range(64)]


def check_may_add(tree: Namespace, folder: Inode, name: str, who: StorageUser) -> None:
    """Adding and removing needs WRITE on the folder; in the root everybody has the folder of his own name."""
    if _is_open_root(folder) and (name in _PUBLIC or _is_own_folder(tree, name, who)):
        return
    folder.refuse_unless(who, Access.WRITE)


def check_may_move(tree: Namespace, folder: Inode, node: Inode, who: StorageUser) -> None:
    his = _is_open_root(folder) and node.record.owner == who.name
    if his and _is_own_folder(tree, node.names[0], who):
        return
    folder.refuse_unless(who, Access.WRITE)


def _is_open_root(folder: Inode) -> bool:
    return not folder.names and not folder.record.mode & READ_ONLY


def _is_own_folder(tree: Namespace, name: str, who: StorageUser) -> bool:
    return tree.keeps_records and name == who.name and name not in _RESERVED


def check_removable(who: StorageUser, folder: Inode, node: Inode) -> None:
    if node.names in ((HOMES,), (TEAMS,)):
        # Not even by an administrator, who on his own machine is everybody: results would have nowhere to go.
        raise not_allowed(
            f"{text_of(node.names)} is where the storage keeps everybody's folders: it stays. "
            "What is in it can be removed."
        )
    check_may_remove(who, folder, node.names[-1], node.record)


def check_may_remove(who: StorageUser, folder: Inode, name: str, record: Ownership) -> None:
    if not may_remove(who, folder.record, record):
        path = text_of((*folder.names, name))
        raise not_allowed(
            f"Permission denied by sticky bit: user={who.name}, path={path}, owner={record.owner}"
        )


def record_for(folder: Ownership, who: StorageUser, mode: int, *, is_folder: bool) -> Ownership:
    """What a new thing in a folder gets: the folder's group, and in a team's folder the team's rights."""
    mode &= 0o1777 if is_folder else 0o777
    if folder.mode & TEAM:
        rights = folder.mode & (0o070 if is_folder else 0o060)
        mode = (mode & ~0o070) | rights | (TEAM if is_folder else 0)
    return Ownership(who.name, folder.group, mode)


def make_folders(tree: Namespace, spot: PathLookup, names: Names, who: StorageUser, mode: int) -> Inode:
    """Make ``names`` below the last folder of a spot where something is missing.

    The caller closes the descriptor of what it gets.
    """
    folder = spot.parent_inode
    if folder is None:
        raise no_file(spot.path)
    if not folder.folder:
        raise not_a_folder(folder.path)
    check_may_add(tree, folder, names[0], who)
    held = -1
    try:
        for left, name in enumerate(names, 1 - len(names)):
            folder = _make(tree, folder, name, who, mode if left == 0 else mode | 0o300)
            if held >= 0:
                os.close(held)
            held = folder.fd
    except BaseException:
        if held >= 0:
            os.close(held)
        raise
    return folder


def _make(tree: Namespace, folder: Inode, name: str, who: StorageUser, mode: int) -> Inode:
    path = text_of((*folder.names, name))
    with _MAKING[folder.status.st_ino % len(_MAKING)]:
        new = True
        try:
            os.mkdir(name, 0o700, dir_fd=folder.fd)
        except FileExistsError:
            new = False
        node = tree.child(folder, name)
        if node is None:
            raise exists(path)
        if not node.folder:
            os.close(node.fd)
            raise not_a_folder(path)
        try:
            if new:
                tree.set_record(node, _record_of_new(folder, name, who, mode))
            else:
                # Somebody else was faster, and may not want us in it.
                node.refuse_unless(who, Access.WRITE | Access.EXECUTE)
        except BaseException:
            os.close(node.fd)
            raise
    return node


def _record_of_new(folder: Inode, name: str, who: StorageUser, mode: int) -> Ownership:
    if not folder.names and name == who.name and name not in _RESERVED:
        return Ownership(who.name, who.name, 0o700)
    if not folder.names and name in _PUBLIC:
        return _PUBLIC_RECORD
    return record_for(folder.record, who, mode, is_folder=True)


def create_home(tree: Namespace, who: StorageUser) -> None:
    """Give somebody his home, and each of his groups its folder, where they are not there yet."""
    _have(tree, HOMES, who.name, Ownership(who.name, who.name, 0o700))
    for group in who.groups:
        _have(tree, TEAMS, group, Ownership(SUPERUSER, group, 0o770 | TEAM))


def _have(tree: Namespace, place: str, name: str, record: Ownership) -> None:
    if not good_name(name) or name in (".", ".."):
        return
    root = StorageUser(SUPERUSER, admin=True)
    with tree.find(f"/{place}/{name}", root) as spot:
        if spot.node is None:
            node = make_folders(tree, spot, spot.missing, root, FOLDER_MODE)
            try:
                tree.set_record(node, record)
            finally:
                os.close(node.fd)
