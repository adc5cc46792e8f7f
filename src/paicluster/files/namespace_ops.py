"""Changes to the namespace: mkdir, rename, delete, mode, owner, times."""

from __future__ import annotations

import os

from paicluster.files.atomic_io import rename_noreplace
from paicluster.files.directories import (
    check_may_move,
    check_may_remove,
    check_name_is_free,
    check_removable,
    make_folders,
)
from paicluster.files.errors import bad_path, disk_errors, exists, no_file, not_allowed, not_empty
from paicluster.files.namespace import Inode, Namespace, PathLookup, entries, names_in
from paicluster.files.ownership import (
    HOMES,
    READ_ONLY,
    STICKY,
    TEAM,
    check_owner_change_supported,
    is_valid_name,
)
from paicluster.files.paths import MAX_DEPTH, split_path
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.staging import StagingArea
from paicluster.files.usage import bytes_below, freed_bytes
from paicluster.files.walk import walk

_ALL = Access.READ | Access.WRITE | Access.EXECUTE


def make_dirs(namespace: Namespace, path: str, user: StorageUser, mode: int) -> None:
    """Create a folder and its missing parents; an existing folder is not an error."""
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        if lookup.inode is None:
            os.close(make_folders(namespace, lookup, lookup.missing, user, mode).fd)
        elif not lookup.inode.is_folder:
            raise exists(path, " as a file")


def rename(namespace: Namespace, source: str, target: str, user: StorageUser) -> bool:
    """HDFS rename: into an existing folder, never over a file; False when it is not possible."""
    to = split_path(target)
    with disk_errors(source), namespace.look_up(source, user) as old:
        if old.inode is None or not old.names:
            return False
        with namespace.look_up(target, user) as new:
            into_folder = new.inode is not None and new.inode.is_folder
        if into_folder:
            to = (*to, old.name)
        if to == old.names:
            return True
        with namespace.look_up("/" + "/".join(to), user) as new:
            if new.inode is not None or len(new.missing) > 1 or to[: len(old.names)] == old.names:
                return False
            _check_move(namespace, old, new, user)
            try:
                rename_noreplace(old.parent().fd, old.name, new.parent().fd, new.name)
            except FileExistsError:
                return False
            return True


def move(namespace: Namespace, source: str, target: str, user: StorageUser, *, overwrite: bool) -> None:
    """Rename to exactly this path; with ``overwrite`` also over a file, or over an empty folder."""
    with disk_errors(target), namespace.look_up(source, user) as old, namespace.look_up(target, user) as new:
        inode = old.existing()
        if len(new.missing) > 1:
            raise no_file(new.path)
        if new.names[: len(old.names)] == old.names or not old.names:
            raise bad_path(target, f"{source} cannot be moved there")
        if new.inode is not None:
            if not overwrite or new.inode.is_folder != inode.is_folder:
                raise exists(new.path)
            check_removable(user, new.parent(), new.inode)
        _check_move(namespace, old, new, user)
        if overwrite:
            os.rename(old.name, new.name, src_dir_fd=old.parent().fd, dst_dir_fd=new.parent().fd)
        else:
            rename_noreplace(old.parent().fd, old.name, new.parent().fd, new.name)


def _check_move(namespace: Namespace, old: PathLookup, new: PathLookup, user: StorageUser) -> None:
    check_may_move(namespace, old.parent(), old.existing(), user)
    check_removable(user, old.parent(), old.existing())
    # Any user may create certain names in the root, with an ownership the storage chooses. A moved folder
    # keeps its own ownership, so moving to such a name needs WRITE on the root.
    new.parent().check_access(user, Access.WRITE)
    check_name_is_free(new.parent(), new.name, user)
    _check_depth(namespace, old, new)


def _check_depth(namespace: Namespace, old: PathLookup, new: PathLookup) -> None:
    """After the move the folder's contents must still be reachable by a path."""
    deeper = len(new.names) - len(old.names)
    if deeper <= 0 or not old.existing().is_folder:
        return

    def visit(folder: Inode) -> list[str]:
        if len(folder.names) + deeper >= MAX_DEPTH and names_in(folder):
            raise bad_path(new.path, f"the contents of {old.path} would be more than {MAX_DEPTH} levels deep")
        return names_in(folder, folders_only=True)

    walk(namespace, old.existing(), visit)


def delete(namespace: Namespace, area: StagingArea, path: str, user: StorageUser, *, recursive: bool) -> bool:
    """Delete a file or folder; False when it does not exist or is the root."""
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        inode = lookup.inode
        if inode is None or not lookup.names:
            return False
        if lookup.names == (HOMES, user.name):
            # Only an administrator deletes homes, and never the own one, as on an embedded cluster.
            raise not_allowed(
                f"{path} is your home folder and cannot be deleted. Its contents can be deleted."
            )
        parent = lookup.parent()
        check_may_move(namespace, parent, inode, user)
        check_removable(user, parent, inode)
        if not inode.is_folder:
            os.unlink(lookup.name, dir_fd=parent.fd)
            area.usage.release(inode.ownership.owner, freed_bytes(inode.status))
        elif not recursive:
            _remove_empty(lookup, parent)
        else:
            if not user.admin:
                _check_may_empty(namespace, inode, user)
            # Counted only where it matters: it reads every folder once more.
            held = bytes_below(namespace, inode) if area.usage.is_counted else {}
            area.discard(parent.fd, lookup.name)
            for owner, size in held.items():
                area.usage.release(owner, size)
        return True


def _remove_empty(lookup: PathLookup, parent: Inode) -> None:
    try:
        os.rmdir(lookup.name, dir_fd=parent.fd)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise not_empty(lookup.path) from None


def _check_may_empty(namespace: Namespace, inode: Inode, user: StorageUser) -> None:
    """The user must be allowed to empty every folder below the deleted one."""

    def visit(folder: Inode) -> list[str]:
        sticky = bool(folder.ownership.mode & STICKY)
        children = list(entries(folder, with_ownership=sticky))
        if children:
            folder.check_access(user, _ALL)
        for entry in children if sticky else ():
            check_may_remove(user, folder, entry.name, entry.ownership)
        return [entry.name for entry in children if entry.is_folder]

    walk(namespace, inode, visit)


def set_mode(namespace: Namespace, path: str, user: StorageUser, mode: int) -> None:
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        inode = lookup.existing()
        _check_owner(inode, user)
        # A client's mode cannot change whether a folder is a team folder.
        team_bit = inode.ownership.mode & TEAM
        namespace.set_ownership(inode, inode.ownership._replace(mode=(mode & 0o1777) | team_bit))


def set_owner(namespace: Namespace, path: str, user: StorageUser, owner: str, group: str) -> None:
    """Change owner and group. An owner may choose among own groups; all else needs an administrator."""
    for name in (owner, group):
        if name and not is_valid_name(name):
            raise bad_path(name, "it is not a valid user or group name")
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        inode = lookup.existing()
        _check_owner(inode, user)
        if not user.admin and owner and owner != inode.ownership.owner:
            raise not_allowed(f"User {user.name} is not a super user (non-super user cannot change owner).")
        if not user.admin and group and not user.is_in(group):
            raise not_allowed(f"User {user.name} does not belong to {group}.")
        check_owner_change_supported(has_xattrs=namespace.has_xattrs)
        ownership = inode.ownership
        namespace.set_ownership(
            inode, ownership._replace(owner=owner or ownership.owner, group=group or ownership.group)
        )


def set_times(
    namespace: Namespace,
    path: str,
    user: StorageUser,
    modified_ms: int | None = None,
    accessed_ms: int | None = None,
) -> None:
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        inode = lookup.existing()
        inode.check_access(user, Access.WRITE)
        now = inode.status
        modified = now.st_mtime_ns if modified_ms is None else modified_ms * 1_000_000
        accessed = now.st_atime_ns if accessed_ms is None else accessed_ms * 1_000_000
        os.utime(inode.on_disk, ns=(accessed, modified))


def _check_owner(inode: Inode, user: StorageUser) -> None:
    if not user.admin and (user.name != inode.ownership.owner or inode.ownership.mode & READ_ONLY):
        raise not_allowed(
            f"Permission denied. user={user.name} is not the owner of inode={inode.path}",
        )
