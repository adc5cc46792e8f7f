"""`paicluster backup` and `paicluster restore`: a cluster's state in one file."""

from __future__ import annotations

import argparse
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from openpaisdk.errors import ConfigError
from paicluster.config import cluster_file
from paicluster.store.sqlite import copy_database

_DATABASE = "cluster.db"
# Always saved. Logs and working folders are saved with --with-files.
_ALWAYS = ("keys",)
_SETTINGS = cluster_file.NAME
_FILES = ("tasks", "sources", "storage")
# How tar programs write extended attributes, which hold the owners of files in the storage.
_ATTRIBUTE = "SCHILY.xattr."


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
    database = cluster_file.settings_of(cluster_file.of_options(arguments.home, None)).database_file
    if not database.is_file():
        raise ConfigError(f"There is no cluster in {home}.")
    if target.exists() and not target.is_file():
        # As root, a backup to /dev/null would replace it.
        raise ConfigError(f"{target} exists and is not a regular file.")
    temporary = target.with_name(target.name + ".part")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            copy = Path(folder) / _DATABASE
            copy_database(database, copy)
            # The backup holds the keys: it is readable by its owner only.
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as f:
                with tarfile.open(fileobj=f, mode="w") as archive:
                    archive.add(copy, _DATABASE)
                    for path in _paths(home, arguments.with_files):
                        _add(archive, path, str(path.relative_to(home)))
                f.flush()
                os.fsync(f.fileno())
        temporary.rename(target)
    except OSError as error:
        raise ConfigError(f"The backup could not be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
    print(f"Saved {home} to {target} ({target.stat().st_size >> 10} kB).")
    return 0


def _paths(home: Path, with_files: bool) -> Iterator[Path]:
    """Everything to save besides the database; folders before their content."""
    if (home / _SETTINGS).is_file():
        yield home / _SETTINGS
    for name in _ALWAYS + (_FILES if with_files else ()):
        if (home / name).exists():
            yield home / name
            for folder, below, files in os.walk(home / name):
                yield from (Path(folder) / name for name in (*below, *files))


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add one file. While jobs run, files may vanish or grow; the others are saved nevertheless."""
    try:
        member: tarfile.TarInfo | None = archive.gettarinfo(path, name)
    except FileNotFoundError:
        return
    if member is None:  # a socket
        return
    member.pax_headers = {f"{_ATTRIBUTE}{key}": value for key, value in _attributes(path).items()}
    if not member.isreg():
        archive.addfile(member)
        return
    try:
        f = path.open("rb")
    except FileNotFoundError:
        return
    with f:
        # Of the open file, which cannot go away. What it grows by from here on is left out.
        member.size = os.fstat(f.fileno()).st_size
        archive.addfile(member, _Padded(f, member.size))


def _attributes(path: Path) -> dict[str, str]:
    try:
        names = os.listxattr(path, follow_symlinks=False)
        return {
            name: os.getxattr(path, name, follow_symlinks=False).decode()
            for name in names
            if name.startswith("user.")
        }
    except (OSError, UnicodeDecodeError):
        return {}  # a file system without attributes, or a file deleted meanwhile


class _Padded:
    """Reader of exactly ``size`` bytes, padded with zeros if the file was truncated meanwhile."""

    def __init__(self, file: BinaryIO, size: int):
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        count = self._left if size < 0 else min(size, self._left)
        data = self._file.read(count)
        data += b"\0" * (count - len(data))
        self._left -= count
        return data


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
    with tarfile.open(source, "r:") as archive:
        members = archive.getmembers()
        # Checked before anything is written: another tar may be as large as the disk.
        if {member.name.split("/", 1)[0] for member in members} - {_DATABASE, _SETTINGS, *_ALWAYS, *_FILES}:
            raise not_a_backup
        if not {_DATABASE, *_ALWAYS} <= {member.name for member in members}:
            raise not_a_backup
        _extract(archive, members, restored)
        for member in members:
            for key, value in member.pax_headers.items():
                if key.startswith(_ATTRIBUTE) and not member.issym():
                    name = key.removeprefix(_ATTRIBUTE)
                    os.setxattr(restored / member.name, name, value.encode(), follow_symlinks=False)
    if not _is_intact(restored / _DATABASE):
        raise not_a_backup


def _extract(archive: tarfile.TarFile, members: list[tarfile.TarInfo], target: Path) -> None:
    """Extract the members, none of them outside of the target, without set-user-ID bits."""
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
            found = conn.execute("PRAGMA quick_check").fetchone()
            conn.execute("SELECT 1 FROM jobs LIMIT 1").fetchall()
    except sqlite3.Error:
        return False
    return bool(found and found[0] == "ok")
