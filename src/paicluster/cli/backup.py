"""`paicluster backup` and `paicluster restore`: a cluster's state in one file."""

from __future__ import annotations

import argparse
import io
import os
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from paicluster.cli.database_file import database_file
from paicluster.cli.terminal import printable
from paicluster.config import cluster_file
from paicluster.engines.common import attempt_folder
from paicluster.files.tree_archive import ATTRIBUTE, NotSaved, TreeArchive
from paicluster.store.sqlite import copy_database
from paiprotocol.errors import ConfigError
from pairuntime.transport.bounded_tar import BoundedTarFile

_DATABASE = "cluster.db"
# Always saved. Logs and working folders are saved with --with-files.
_ALWAYS = ("keys",)
_SETTINGS = cluster_file.NAME
_FILES = ("tasks", "sources", "storage")
# Lists the files that could not be saved.
_NOT_SAVED = "not-saved"
_MEMBERS = {_DATABASE, _SETTINGS, *_ALWAYS, *_FILES, _NOT_SAVED}
# Of one member of a backup: attributes and the list of a sparse file's parts.
_MAX_HEADER_BYTES = 1 << 20
# Files that were not saved are listed in the backup; so many are printed.
_MAX_PRINTED = 10


def backup_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Save a cluster to a file: a consistent copy of its database, its keys and its\n"
        "settings. Its server may keep running. Protect the file like the keys."
    )
    parser.epilog = "example:\n  paicluster backup --home ./cluster cluster.tar"
    _home_and_file(parser)
    parser.add_argument(
        "--with-files", action="store_true", help="also save logs, working folders, sources and the storage"
    )


def restore_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Restore a saved cluster into a new or empty folder. Stop the old server before\n"
        "starting this one: jobs that were running at the time of the backup run again."
    )
    parser.epilog = "example:\n  paicluster restore --home ./restored cluster.tar"
    _home_and_file(parser)


def _home_and_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--home", required=True, metavar="DIR", help="the cluster's home")
    parser.add_argument("file", metavar="FILE", help="the backup")


def backup(arguments: argparse.Namespace) -> int:
    """Write the backup: a consistent copy of the database, the keys, and the files with --with-files."""
    home, target = Path(arguments.home).expanduser().absolute(), Path(arguments.file).expanduser().absolute()
    database = database_file(
        cluster_file.settings_of(cluster_file.of_options(arguments.home, None)),
        "Save the database with pg_dump --format=custom, then the folder keys and cluster.yaml of the home.",
    )
    if not database.is_file():
        raise ConfigError(f"There is no cluster in {home}.")
    if target.exists() and not target.is_file():
        # As root, a backup to /dev/null would replace it.
        raise ConfigError(f"{target} exists and is not a regular file.")
    try:
        # A private folder: beside the target, another account might prepare a link under a known name.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            copy, archive = Path(folder) / _DATABASE, Path(folder) / "archive"
            copy_database(database, copy)
            not_saved = _write_archive(archive, home, copy, arguments.with_files)
            archive.rename(target)
    except OSError as error:
        raise ConfigError(f"The backup could not be written: {error.strerror or error}.") from error
    _report(not_saved)
    print(f"Saved {home} to {target} ({target.stat().st_size >> 10} kB).")
    return 0


def _write_archive(path: Path, home: Path, database: Path, with_files: bool) -> NotSaved:
    """Write the backup durably, with ``database``, a copy; returns what could not be saved."""
    # The backup holds the keys: it is readable by its owner only.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as f, _open_folder(home) as opened, _open_folder(database.parent) as copies:
        with tarfile.open(fileobj=f, mode="w") as archive:
            tree = TreeArchive(archive, is_excluded=_holds_secrets)
            tree.add(copies, _DATABASE)
            for name in (_SETTINGS, *_ALWAYS):
                tree.add(opened, name, hard_links=True)
            # The source archives are the server's own; tasks on a Slurm cluster get links to them.
            for name in _FILES if with_files else ():
                tree.add(opened, name, hard_links=name == "sources")
            if tree.not_saved.count:
                text = _described(tree.not_saved, len(tree.not_saved.named)).encode()
                member = tarfile.TarInfo(_NOT_SAVED)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
        f.flush()
        os.fsync(f.fileno())
    return tree.not_saved


@contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _holds_secrets(name: str) -> bool:
    """Whether it is a file of an attempt that holds the job's secrets; a restored cluster writes it again."""
    top, *inside = name.split("/")
    return top == "tasks" and "/".join(inside[2:]) in attempt_folder.FILES_WITH_SECRETS


def _described(not_saved: NotSaved, limit: int) -> str:
    """Text that lists the first files that were not saved, one per line, with control characters escaped."""
    named = not_saved.named[:limit]
    lines = [f"{not_saved.count} files were not saved:", *(f"  {name}: {reason}" for name, reason in named)]
    return "\n".join(map(printable, lines)) + "\n"


def _report(not_saved: NotSaved) -> None:
    if not_saved.count:
        print(_described(not_saved, _MAX_PRINTED), end="", file=sys.stderr)
    if not_saved.count > _MAX_PRINTED:
        named = "them all" if not_saved.count == len(not_saved.named) else f"the first {len(not_saved.named)}"
        print(f"The file {_NOT_SAVED} in the backup names {named}.", file=sys.stderr)


def restore(arguments: argparse.Namespace) -> int:
    """Restore into a new or empty home. Overwrites nothing, and a failure leaves nothing behind."""
    home, source = Path(arguments.home).expanduser().absolute(), Path(arguments.file).expanduser().absolute()
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise ConfigError(
            f"{home} is not empty.", hint="Restore into a new home, or move its content away first."
        )
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        # In a temporary folder beside the home, renamed when complete.
        with tempfile.TemporaryDirectory(
            dir=home.parent, prefix=f".{home.name}.", ignore_cleanup_errors=True
        ) as temporary:
            restored = Path(temporary) / "home"
            restored.mkdir(mode=0o700)
            _unpack(source, restored)
            restored.rename(home)
    except tarfile.TarError:
        raise ConfigError(f"{source} is not a backup of a cluster, or it is damaged.") from None
    except OSError as error:
        raise ConfigError(f"{source} could not be restored: {error.strerror or error}.") from error
    print(f"Restored {source} to {home}.")
    _disable_foreign_settings(home)
    return 0


def _disable_foreign_settings(home: Path) -> None:
    """Rename a cluster.yaml that names another home or database: those are of the old cluster."""
    file = home / _SETTINGS
    try:
        fields = cluster_file.load(file) if file.is_file() else {}
    except ConfigError:
        return  # the server will report what is wrong with it, such as a missing certificate
    if fields.get("home", home) != home or fields.get("database", home / _DATABASE) != home / _DATABASE:
        renamed = file.rename(file.with_suffix(".yaml.old"))
        print(
            f"Its cluster.yaml names another home or database: renamed to {renamed}. "
            "Correct it and rename it back."
        )


def _unpack(source: Path, restored: Path) -> None:
    not_a_backup = ConfigError(f"{source} is not a backup of a cluster, or it is damaged.")
    with source.open("rb") as file:
        archive = BoundedTarFile(fileobj=file, max_header_bytes=_MAX_HEADER_BYTES)
        members = archive.getmembers()
        # Checked before anything is written: another tar may be as large as the disk.
        if not all(map(_is_of_backup, members)):
            raise not_a_backup
        if not {_DATABASE, *_ALWAYS} <= {member.name for member in members}:
            raise not_a_backup
        links = [member for member in members if member.issym()]
        _extract(archive, [member for member in members if not member.issym()], restored)
        _restore_attributes(members, restored)
        _restore_links(links, restored)
    if not _is_intact(restored / _DATABASE):
        raise not_a_backup


def _is_of_backup(member: tarfile.TarInfo) -> bool:
    """Whether a backup has such a member: a file, a folder or a link, under a path that leads nowhere else.

    tarfile's filter for data would refuse links to other places and forget the owners, which tasks have.
    """
    top, *inside = member.name.split("/")
    is_inside = top in _MEMBERS and not {"", ".", ".."} & set(inside)
    return is_inside and (member.isreg() or member.isdir() or member.issym())


def _restore_attributes(members: list[tarfile.TarInfo], restored: Path) -> None:
    for member in members:
        for key, value in member.pax_headers.items():
            if key.startswith(ATTRIBUTE) and not member.issym():
                name = key.removeprefix(ATTRIBUTE)
                os.setxattr(restored / member.name, name, value.encode(), follow_symlinks=False)


def _restore_links(links: list[tarfile.TarInfo], restored: Path) -> None:
    """Create the links when everything else exists, the deepest first: nothing is written through them."""
    for member in sorted(links, key=lambda member: member.name.count("/"), reverse=True):
        path = restored / member.name
        try:
            path.symlink_to(member.linkname)
        except (FileExistsError, NotADirectoryError):
            continue  # it was exchanged for a file or a folder during the backup, which is in it as well
        if os.geteuid() == 0:
            os.chown(path, member.uid, member.gid, follow_symlinks=False)


def _extract(archive: tarfile.TarFile, members: list[tarfile.TarInfo], target: Path) -> None:
    """Extract members of a backup, which are files and folders in it, without set-user-ID bits."""
    if hasattr(tarfile, "tar_filter"):
        archive.extractall(target, members, filter="tar")
        return
    # Python before 3.11.4 (Debian 12 has 3.11.2) has no filters: the same checks here.
    root = target.resolve()
    folders = []
    for member in members:
        path = (root / member.name).resolve()
        if not path.is_relative_to(root):
            raise tarfile.ExtractError(f"{member.name} is outside of the target")
        member.mode &= 0o755
        archive.extract(member, target, set_attrs=not member.isdir())
        if member.isdir():
            folders.append((member, path))
    # A folder gets its own mode and time when it is complete.
    for member, path in reversed(folders):
        if os.geteuid() == 0:
            os.chown(path, member.uid, member.gid)
        path.chmod(member.mode)
        os.utime(path, (member.mtime, member.mtime))


def _is_intact(database: Path) -> bool:
    try:
        with closing(sqlite3.connect(database)) as conn:
            row = conn.execute("PRAGMA quick_check").fetchone()
            conn.execute("SELECT 1 FROM jobs LIMIT 1").fetchall()
    except sqlite3.Error:
        return False
    return bool(row and row[0] == "ok")
