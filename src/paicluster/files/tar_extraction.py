"""A whole folder that comes in as a tar: unpacked aside, then put in its place in one step.

Such a folder carries a mark that says for whom it was made. Only a folder with a mark is ever replaced or
taken away here: one that a person made stays, whatever its name.
"""

from __future__ import annotations

import errno
import os
import secrets
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from openpaisdk.errors import PaiError
from openpaisdk.fileio.remove_tree import remove_tree
from paicluster.files import ownership
from paicluster.files.directories import FOLDER_MODE, make_folders, record_for
from paicluster.files.errors import disk_errors, failed, not_a_folder
from paicluster.files.namespace import Inode, Namespace, PathLookup
from paicluster.files.ownership import SUPERUSER, Ownership
from paicluster.files.paths import Names, names_of, text_of
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.renaming import rename_noreplace
from paicluster.files.staging import STAGED
from paicluster.files.storage import Storage

MARK = "user.pai.made-for"
# So much of a file between two questions whether to go on.
_AT_ONCE = 64 << 20
_NO_MARK = (errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ExtractedFolder:
    """A folder that lies aside. ``place`` or ``drop`` it; from one thread at a time."""

    def __init__(
        self, storage: Storage, path: str, who: StorageUser, stop: Callable[[], bool] = lambda: False
    ):
        """``path`` is where it will lie, and ``who`` whose it will be.

        ``stop`` is asked again and again whether it is to be given up.
        """
        self._storage = storage
        self._names = names_of(path)
        self._who = who
        self._stop = stop
        self._name = secrets.token_hex(16)
        self._aside = storage.area.folder(STAGED)
        # What folders in it get; a team's folder has its say.
        self._folder = Ownership(who.name, who.name, FOLDER_MODE)

    @property
    def path(self) -> str:
        return text_of(self._names)

    def fill(self, bundle: Path) -> None:
        """Unpack a tar. What the storage could not name, and links, which it has none of, stay out."""
        self._storage.area.active.add(self._name)
        with disk_errors(self.path):
            with self._storage.tree.find(text_of(self._names[:-1]), self._who) as spot:
                around = spot.node or spot.parent()
                self._folder = record_for(around.record, self._who, FOLDER_MODE, is_folder=True)
            os.mkdir(self._name, 0o700, dir_fd=self._aside)
            root = os.open(self._name, _FOLDER, dir_fd=self._aside)
            try:
                with bundle.open("rb") as file:
                    self._take(root, file.fileno(), tarfile.TarFile(fileobj=file, errorlevel=0))
            except (tarfile.TarError, ValueError, OverflowError) as error:
                # Anybody may have packed it, with anything in its heads.
                raise failed(f"{self.path} cannot be made of this tar: {error}.") from None
            finally:
                os.close(root)

    def _take(self, root: int, bundle: int, archive: tarfile.TarFile) -> None:
        # Nobody else writes where this is unpacked, and no link is made there: a path below it stays there.
        made: set[Names] = {()}
        for member in archive:
            self._refuse_if_stopped()
            names = self._names_in(member.name)
            if not names or member.issparse() or not (member.isreg() or member.isdir()):
                continue
            for i in range(1, len(names) if member.isreg() else len(names) + 1):
                if names[:i] not in made:
                    where = "/".join(names[:i])
                    os.mkdir(where, 0o700, dir_fd=root)
                    ownership.write(f"/proc/self/fd/{root}/{where}", self._folder, keeps=self._keeps)
                    made.add(names[:i])
            if member.isreg():
                self._write(root, "/".join(names), bundle, member)

    def _names_in(self, name: str) -> Names:
        try:
            return names_of(f"{self.path}/{name}")[len(self._names) :]
        except PaiError:
            return ()

    def _write(self, root: int, name: str, bundle: int, member: tarfile.TarInfo) -> None:
        try:
            fd = os.open(name, _NEW, 0o600, dir_fd=root)
        except FileExistsError:
            # A tar may have a file twice: the later one holds.
            os.unlink(name, dir_fd=root)
            fd = os.open(name, _NEW, 0o600, dir_fd=root)
        try:
            at, end = member.offset_data, member.offset_data + member.size
            while at < end:
                self._refuse_if_stopped()
                done = os.sendfile(fd, bundle, at, min(_AT_ONCE, end - at))
                if not done:
                    raise OSError(errno.EIO, "the tar ends too early")
                at += done
            record = record_for(self._folder, self._who, member.mode, is_folder=False)
            ownership.write(fd, record, keeps=self._keeps)
            os.utime(fd, (member.mtime, member.mtime))
        finally:
            os.close(fd)

    def _refuse_if_stopped(self) -> None:
        if self._stop():
            raise failed(f"{self.path} was given up before it was whole.")

    @property
    def _keeps(self) -> bool:
        return self._storage.tree.keeps_records

    def place(self, mark: str) -> None:
        """Put it where it belongs, over an older one with a mark; over nothing else."""
        storage, tree = self._storage, self._storage.tree
        storage.welcome(self._who)
        parent = text_of(self._names[:-1])
        with disk_errors(self.path), tree.find(parent, self._who) as spot:
            made = -1
            if spot.node is None:
                folder = make_folders(tree, spot, spot.missing, self._who, FOLDER_MODE)
                made = folder.fd
            else:
                folder = spot.node
            try:
                if not folder.folder:
                    raise not_a_folder(parent)
                folder.refuse_unless(self._who, Access.WRITE | Access.EXECUTE)
                self._take_place(folder, mark)
            finally:
                if made >= 0:
                    os.close(made)

    def _take_place(self, folder: Inode, mark: str) -> None:
        name = self._names[-1]
        aside = f"/proc/self/fd/{self._aside}/{self._name}"
        ownership.write(aside, self._folder, keeps=self._keeps)
        if self._keeps:
            os.setxattr(aside, MARK, mark.encode())
        if _mark_of(self._storage.tree, folder, name) is not None:
            self._storage.area.discard(folder.fd, name)
        rename_noreplace(self._aside, self._name, folder.fd, name)

    def drop(self) -> None:
        """Forget it. Once it is placed there is nothing left to forget."""
        self._storage.area.active.discard(self._name)
        if not self._storage.area.closed:
            try:
                remove_tree(self._aside, self._name)
            except OSError:
                pass  # gone, or gone with the next start


def is_marked(storage: Storage, path: str, mark: str) -> bool:
    """Whether the folder that was made with this mark is there."""
    with _around(storage, path, mark) as spot:
        return spot is not None


def remove_marked(storage: Storage, path: str, mark: str) -> bool:
    """Take a folder away that was made with this mark, and the folder around it where that is empty then."""
    with _around(storage, path, mark) as spot:
        if spot is None or spot.node is None:
            return False
        storage.area.discard(spot.node.fd, names_of(path)[-1])
        if spot.names:
            try:
                os.rmdir(spot.name, dir_fd=spot.parent().fd)
            except OSError:
                pass  # there is more in it
        return True


@contextmanager
def _around(storage: Storage, path: str, mark: str) -> Iterator[PathLookup | None]:
    """The folder in which one that was made with this mark lies; None where there is no such."""
    names = names_of(path)
    root = StorageUser(SUPERUSER, admin=True)
    with disk_errors(path), storage.tree.find(text_of(names[:-1]), root) as spot:
        folder = spot.node
        there = folder is not None and folder.folder and _mark_of(storage.tree, folder, names[-1]) == mark
        yield spot if there else None


def _mark_of(tree: Namespace, folder: Inode, name: str) -> str | None:
    node = tree.child(folder, name)
    if node is None:
        return None
    try:
        return os.getxattr(node.on_disk, MARK).decode() if node.folder else None
    except OSError as error:
        if error.errno not in _NO_MARK:
            raise
        return None
    finally:
        os.close(node.fd)
