"""Changing what is there: folders, names, rights, times; and taking things away."""

from __future__ import annotations

import os

from paicluster.files import ownership
from paicluster.files.directories import (
    check_may_move,
    check_may_remove,
    check_removable,
    make_folders,
)
from paicluster.files.errors import bad_path, disk_errors, exists, no_file, not_allowed, not_empty
from paicluster.files.namespace import Inode, Namespace, PathLookup, entries, names_in
from paicluster.files.ownership import READ_ONLY, STICKY, TEAM, good_name
from paicluster.files.paths import DEEPEST, names_of
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.renaming import rename_noreplace
from paicluster.files.staging import StagingArea
from paicluster.files.walk import walk

_ALL = Access.READ | Access.WRITE | Access.EXECUTE


def make_dirs(tree: Namespace, path: str, who: StorageUser, mode: int) -> None:
    """A folder with all that lead to it; one that is there already is fine."""
    with disk_errors(path), tree.find(path, who) as spot:
        if spot.node is None:
            os.close(make_folders(tree, spot, spot.missing, who, mode).fd)
        elif not spot.node.folder:
            raise exists(path, " as a file")


def rename(tree: Namespace, source: str, target: str, who: StorageUser) -> bool:
    """As HDFS renames: into a folder that is there, never over a file; False when it cannot be done."""
    to = names_of(target)
    with disk_errors(source), tree.find(source, who) as old:
        if old.node is None or not old.names:
            return False
        with tree.find(target, who) as new:
            into = new.node is not None and new.node.folder
        if into:
            to = (*to, old.name)
        if to == old.names:
            return True
        with tree.find("/" + "/".join(to), who) as new:
            if new.node is not None or len(new.missing) > 1 or to[: len(old.names)] == old.names:
                return False
            _refuse_unless_may_move(tree, old, new, who)
            try:
                rename_noreplace(old.parent().fd, old.name, new.parent().fd, new.name)
            except FileExistsError:
                return False
            return True


def move(tree: Namespace, source: str, target: str, who: StorageUser, *, overwrite: bool) -> None:
    """Rename to exactly this path; with ``overwrite`` also over a file, or over an empty folder."""
    with disk_errors(target), tree.find(source, who) as old, tree.find(target, who) as new:
        node = old.existing()
        if len(new.missing) > 1:
            raise no_file(new.path)
        if new.names[: len(old.names)] == old.names or not old.names:
            raise bad_path(target, f"{source} cannot be moved there")
        if new.node is not None:
            if not overwrite or new.node.folder != node.folder:
                raise exists(new.path)
            check_removable(who, new.parent(), new.node)
        _refuse_unless_may_move(tree, old, new, who)
        if overwrite:
            os.rename(old.name, new.name, src_dir_fd=old.parent().fd, dst_dir_fd=new.parent().fd)
        else:
            rename_noreplace(old.parent().fd, old.name, new.parent().fd, new.name)


def _refuse_unless_may_move(tree: Namespace, old: PathLookup, new: PathLookup, who: StorageUser) -> None:
    check_may_move(tree, old.parent(), old.existing(), who)
    check_removable(who, old.parent(), old.existing())
    # Some names in the root are anybody's to make, with a record we choose. What is moved brings its own.
    new.parent().refuse_unless(who, Access.WRITE)
    _refuse_if_too_deep(tree, old, new)


def _refuse_if_too_deep(tree: Namespace, old: PathLookup, new: PathLookup) -> None:
    """What is in a folder must be within reach of a path afterwards, too."""
    deeper = len(new.names) - len(old.names)
    if deeper <= 0 or not old.existing().folder:
        return

    def look(folder: Inode) -> list[str]:
        if len(folder.names) + deeper >= DEEPEST and names_in(folder):
            raise bad_path(new.path, f"what is in {old.path} would lie more than {DEEPEST} levels deep")
        return names_in(folder, folders_only=True)

    walk(tree, old.existing(), look)


def delete(tree: Namespace, area: StagingArea, path: str, who: StorageUser, *, recursive: bool) -> bool:
    """Take something away; False when it is not there, or is the root."""
    with disk_errors(path), tree.find(path, who) as spot:
        node = spot.node
        if node is None or not spot.names:
            return False
        holder = spot.parent()
        check_may_move(tree, holder, node, who)
        check_removable(who, holder, node)
        if not node.folder:
            os.unlink(spot.name, dir_fd=holder.fd)
        elif not recursive:
            _remove_empty(spot, holder)
        else:
            if not who.admin:
                _refuse_unless_may_empty(tree, node, who)
            area.discard(holder.fd, spot.name)
        return True


def _remove_empty(spot: PathLookup, holder: Inode) -> None:
    try:
        os.rmdir(spot.name, dir_fd=holder.fd)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise not_empty(spot.path) from None


def _refuse_unless_may_empty(tree: Namespace, node: Inode, who: StorageUser) -> None:
    """Whoever deletes a folder must be allowed to empty every folder below it."""

    def look(folder: Inode) -> list[str]:
        sticky = bool(folder.record.mode & STICKY)
        found = list(entries(folder, with_records=sticky))
        if found:
            folder.refuse_unless(who, _ALL)
        for entry in found if sticky else ():
            check_may_remove(who, folder, entry.name, entry.record)
        return [entry.name for entry in found if entry.folder]

    walk(tree, node, look)


def set_mode(tree: Namespace, path: str, who: StorageUser, mode: int) -> None:
    with disk_errors(path), tree.find(path, who) as spot:
        node = spot.existing()
        _refuse_unless_owner(node, who)
        # That a folder is a team's is not for a mode to say.
        kept = node.record.mode & TEAM
        tree.set_record(node, node.record._replace(mode=(mode & 0o1777) | kept))


def set_owner(tree: Namespace, path: str, who: StorageUser, owner: str, group: str) -> None:
    """Give a thing away. An owner may choose among his groups; all else is for administrators."""
    for name in (owner, group):
        if name and not good_name(name):
            raise bad_path(name, "this is no name of a user or a group")
    with disk_errors(path), tree.find(path, who) as spot:
        node = spot.existing()
        _refuse_unless_owner(node, who)
        if not who.admin and owner and owner != node.record.owner:
            raise not_allowed(f"User {who.name} is not a super user (non-super user cannot change owner).")
        if not who.admin and group and not who.is_in(group):
            raise not_allowed(f"User {who.name} does not belong to {group}.")
        ownership.refuse_owner(keeps=tree.keeps_records)
        record = node.record
        tree.set_record(node, record._replace(owner=owner or record.owner, group=group or record.group))


def set_times(
    tree: Namespace,
    path: str,
    who: StorageUser,
    modified_ms: int | None = None,
    accessed_ms: int | None = None,
) -> None:
    with disk_errors(path), tree.find(path, who) as spot:
        node = spot.existing()
        node.refuse_unless(who, Access.WRITE)
        now = node.status
        modified = now.st_mtime_ns if modified_ms is None else modified_ms * 1_000_000
        accessed = now.st_atime_ns if accessed_ms is None else accessed_ms * 1_000_000
        os.utime(node.on_disk, ns=(accessed, modified))


def _refuse_unless_owner(node: Inode, who: StorageUser) -> None:
    if not who.admin and (who.name != node.record.owner or node.record.mode & READ_ONLY):
        raise not_allowed(
            f"Permission denied. user={who.name} is not the owner of inode={node.path}",
        )
