"""Many small files at once, in and out. Each arrives whole or not at all, whatever happens to the others."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from openpaisdk.errors import PaiError
from openpaisdk.parcels.hashing import ALGORITHMS, of_bytes
from openpaisdk.parcels.records import FILE, FOLDER, PROBLEM, SMALL, Record, cut, end, head, unpacked
from paicluster.api.transfer.folders import Folders
from paicluster.files import Need, Person, Storage, records
from paicluster.files.paths import Names, names_of
from paicluster.files.pieces import append
from paicluster.files.placing import record_for, refuse_unless_may_add, refuse_unless_removable
from paicluster.files.refusals import FULL, disk_errors, exists, is_a_folder, no_file
from paicluster.files.renaming import rename_new
from paicluster.files.staging import STAGED
from paicluster.files.tree import Node, open_file

_CHUNK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_NAMELESS = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC
# Not every disk has files without a name.
_CANNOT = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


def store(storage: Storage, who: Person, base: str, pack: bytes) -> list[dict[str, Any]]:
    """Put every file of a pack in its place below ``base``; what was refused is told, one by one."""
    arrived = list(unpacked(pack))  # nothing of a pack that was cut on its way is taken
    problems: list[dict[str, Any]] = []
    front = names_of(base)
    staging = storage.area.folder(STAGED)
    prefix = secrets.token_hex(12)
    with Folders(storage, who, Need.WRITE | Need.EXECUTE) as folders:
        for number, record in enumerate(arrived):
            try:
                _store_one(storage, folders, staging, f"{prefix}{number:04x}", front, record)
            except PaiError as error:
                problems.append(_problem(record.name, error))
                if error.code == FULL:
                    break
    return problems


def _store_one(
    storage: Storage, folders: Folders, staging: int, aside: str, front: Names, record: Record
) -> None:
    names = (*front, *names_of("/" + record.name)) if record.name else front
    if record.kind == FOLDER:
        folders.get(names, make=True)
        return
    if record.kind != FILE or record.algorithm >= len(ALGORITHMS):
        raise cut()
    content = record.content
    if of_bytes(content, ALGORITHMS[record.algorithm]) != record.digest:
        raise cut()
    if not names:
        raise is_a_folder("/")
    path, name = record.name, names[-1]
    with disk_errors(path):
        folder = folders.get(names[:-1], make=True)
        whose = record_for(folder.record, folders.who, record.mode, is_folder=False)
        # Its time is the original's: whoever cleans must not take it for an old one.
        active = storage.area.active
        active.add(aside)
        try:
            fd, is_named = _new_file(folder.fd, staging, aside)
            try:
                append(fd, (content,))
                records.write(fd, whose, keeps=folders.tree.keeps_records)
                os.utime(fd, ns=(record.mtime_ns, record.mtime_ns))
                try:
                    if is_named:
                        rename_new(staging, aside, folder.fd, name)
                    else:
                        os.link(_own(fd), name, dst_dir_fd=folder.fd)
                except FileExistsError:
                    _refuse_unless_replaceable(folders, folder, name)
                    if not is_named:
                        os.link(_own(fd), aside, dst_dir_fd=staging)
                    os.rename(aside, name, src_dir_fd=staging, dst_dir_fd=folder.fd)
            finally:
                os.close(fd)
        except BaseException:
            try:
                os.unlink(aside, dir_fd=staging)
            except FileNotFoundError:
                pass
            raise
        finally:
            active.discard(aside)


def _new_file(folder: int, staging: int, aside: str) -> tuple[int, bool]:
    """A file to be written, and whether it has a name (``aside``) already.

    Best it has none: a disk then puts it beside the others of its folder, and nobody waits for anybody, as
    all would who make files in one folder of ours.
    """
    try:
        return os.open(".", _NAMELESS, 0o600, dir_fd=folder), False
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    return os.open(aside, _NEW, 0o600, dir_fd=staging), True


def _own(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _refuse_unless_replaceable(folders: Folders, folder: Node, name: str) -> None:
    node = folders.tree.child(folder, name)
    if node is None:
        refuse_unless_may_add(folders.tree, folder, name, folders.who)
        return
    try:
        if node.folder:
            raise exists(node.path, " as a directory")
        node.refuse_unless(folders.who, Need.WRITE)
        refuse_unless_removable(folders.who, folder, node)
    finally:
        os.close(node.fd)


def fetch(storage: Storage, who: Person, base: str, wanted: Sequence[str], algorithm: str) -> Iterator[bytes]:
    """The files by these names below ``base``, packed; one that cannot be had is a record that says why."""
    front = names_of(base)
    place = ALGORITHMS.index(algorithm)
    out: list[bytes] = []
    size = 0
    with Folders(storage, who, Need.EXECUTE) as folders:
        for each in wanted:
            try:
                record, content = _read_one(folders, front, each, place)
            except PaiError as error:
                content = error.message.encode()
                record = Record(PROBLEM, each, content)
            out += (head(record), content)
            size += len(content)
            if size >= _CHUNK:
                yield b"".join(out)
                out, size = [], 0
    out.append(end(len(wanted)))
    yield b"".join(out)


def _read_one(folders: Folders, front: Names, name: str, place: int) -> tuple[Record, bytes]:
    names = (*front, *names_of("/" + name)) if name else front
    if not names:
        raise is_a_folder("/")
    with disk_errors(name):
        folder = folders.get(names[:-1])
        node = folders.tree.child(folder, names[-1])
        if node is None:
            raise no_file(name)
        try:
            if node.folder:
                raise is_a_folder(name)
            node.refuse_unless(folders.who, Need.READ)
            fd = open_file(node, os.O_RDONLY)
        finally:
            os.close(node.fd)
        try:
            content = os.read(fd, SMALL + 1)
            status = os.fstat(fd)
        finally:
            os.close(fd)
    if len(content) != status.st_size or len(content) > SMALL:
        raise PaiError(f"{name} changed while it was read.", code="ChangedFileError", status=409)
    record = Record(
        FILE,
        name,
        content,
        mode=node.record.mode & 0o777,
        mtime_ns=status.st_mtime_ns,
        digest=of_bytes(content, ALGORITHMS[place]),
        algorithm=place,
    )
    return record, content


def _problem(name: str, error: PaiError) -> dict[str, Any]:
    shown = name.encode("utf-8", "backslashreplace").decode()
    return {"name": shown, "code": error.code, "message": error.message, "hint": error.hint}
