"""`paicluster backup` and `paicluster restore`: everything a cluster knows, in one file."""

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
from paicluster.config import cluster_file as cluster_file
from paicluster.store.sqlite import copy_database

_DATABASE = "cluster.db"
# What a cluster cannot do without. Logs and working folders come along with --with-files.
_ALWAYS = ("keys",)
_SETTINGS = cluster_file.NAME
_FILES = ("tasks", "sources", "storage")
# As other tars write extended attributes, by which the storage knows whose a file is.
_ATTRIBUTE = "SCHILY.xattr."


def backup_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Save a cluster to a file: its database as of one moment, its keys and its\n"
        "settings. Its server may run meanwhile. Keep the file as safe as the keys."
    )
    parser.epilog = "example:\n  paicluster backup --home ./cluster cluster.tar"
    _home_and_file(parser)
    parser.add_argument(
        "--with-files", action="store_true", help="also logs, working folders, sources and the storage"
    )


def restore_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Put a saved cluster into a new or empty folder. Stop the old one before this one\n"
        "starts: jobs that were running when it was saved are started again."
    )
    parser.epilog = "example:\n  paicluster restore --home ./restored cluster.tar"
    _home_and_file(parser)


def _home_and_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--home", required=True, metavar="DIR", help="where the cluster keeps everything")
    parser.add_argument("file", metavar="FILE", help="the backup")


def backup(arguments: argparse.Namespace) -> int:
    """The database as of one moment, also while the server runs; the keys; the files, if asked for."""
    home, target = Path(arguments.home).expanduser().absolute(), Path(arguments.file).expanduser().absolute()
    database = cluster_file.settings_of(cluster_file.of_options(arguments.home, None)).database_file
    if not database.is_file():
        raise ConfigError(f"There is no cluster in {home}.")
    if target.exists() and not target.is_file():
        # As root, a backup to /dev/null would take its place.
        raise ConfigError(f"{target} is no file that a backup could replace: name another.")
    aside = target.with_name(target.name + ".part")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            copy = Path(folder) / _DATABASE
            copy_database(database, copy)
            # The keys open the secrets: nobody else may read the file.
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as f:
                with tarfile.open(fileobj=f, mode="w") as archive:
                    archive.add(copy, _DATABASE)
                    for path in _paths(home, arguments.with_files):
                        _add(archive, path, str(path.relative_to(home)))
                f.flush()
                os.fsync(f.fileno())
        aside.rename(target)
    except OSError as error:
        raise ConfigError(f"The backup could not be written: {error.strerror or error}.") from error
    finally:
        aside.unlink(missing_ok=True)
    print(f"Saved {home} to {target} ({target.stat().st_size >> 10} kB).")
    return 0


def _paths(home: Path, with_files: bool) -> Iterator[Path]:
    """Everything to save beside the database; folders before what is in them."""
    if (home / _SETTINGS).is_file():
        yield home / _SETTINGS
    for name in _ALWAYS + (_FILES if with_files else ()):
        if (home / name).exists():
            yield home / name
            for folder, below, files in os.walk(home / name):
                yield from (Path(folder) / one for one in (*below, *files))


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """One file as it is now. While jobs run, files go away and grow; the rest is saved all the same."""
    try:
        about: tarfile.TarInfo | None = archive.gettarinfo(path, name)
    except FileNotFoundError:
        return
    if about is None:  # a socket
        return
    about.pax_headers = {f"{_ATTRIBUTE}{key}": value for key, value in _attributes(path).items()}
    if not about.isreg():
        archive.addfile(about)
        return
    try:
        f = path.open("rb")
    except FileNotFoundError:
        return
    with f:
        # Of the open file, which cannot go away. What it grows by from here on is left out.
        about.size = os.fstat(f.fileno()).st_size
        archive.addfile(about, _Padded(f, about.size))


def _attributes(path: Path) -> dict[str, str]:
    try:
        names = os.listxattr(path, follow_symlinks=False)
        return {
            name: os.getxattr(path, name, follow_symlinks=False).decode()
            for name in names
            if name.startswith("user.")
        }
    except (OSError, UnicodeDecodeError):
        return {}  # a disk that has none, or a file that is gone meanwhile


class _Padded:
    """A file that has as many bytes as were announced, also when it is cut short meanwhile."""

    def __init__(self, file: BinaryIO, size: int):
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted)
        data += b"\0" * (wanted - len(data))
        self._left -= wanted
        return data


def restore(arguments: argparse.Namespace) -> int:
    """Into a home where there is nothing yet: nothing is overwritten, and a failure leaves nothing."""
    home, source = Path(arguments.home).expanduser().absolute(), Path(arguments.file).expanduser().absolute()
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise ConfigError(
            f"{home} is not empty.", hint="Restore into a new home, or move what is there away first."
        )
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        # Beside the home, and renamed when it is whole.
        with tempfile.TemporaryDirectory(
            dir=home.parent, prefix=f".{home.name}.", ignore_cleanup_errors=True
        ) as aside:
            whole = Path(aside) / "home"
            whole.mkdir(mode=0o700)
            _unpack(source, whole)
            whole.rename(home)
    except tarfile.TarError:
        raise ConfigError(f"{source} is no backup of a cluster, or it is broken.") from None
    except OSError as error:
        raise ConfigError(f"{source} could not be restored: {error.strerror or error}.") from error
    print(f"Restored {source} to {home}.")
    _put_aside_if_foreign(home)
    return 0


def _put_aside_if_foreign(home: Path) -> None:
    """A file that says where the database or the home is speaks of the old cluster, not of this one."""
    file = home / _SETTINGS
    try:
        fields = cluster_file.load(file) if file.is_file() else {}
    except ConfigError:
        return  # the server will say what is wrong with it, such as a certificate that is not here
    if fields.get("home", home) != home or fields.get("database", home / _DATABASE) != home / _DATABASE:
        aside = file.rename(file.with_suffix(".yaml.old"))
        print(
            f"Its file names other places for the cluster's: it is now {aside}. Put it back when it is right."
        )


def _unpack(source: Path, whole: Path) -> None:
    foreign = ConfigError(f"{source} is no backup of a cluster, or it is broken.")
    with tarfile.open(source, "r:") as archive:
        members = archive.getmembers()
        # Known before anything is written: any tar may be as large as the disk.
        if {one.name.split("/", 1)[0] for one in members} - {_DATABASE, _SETTINGS, *_ALWAYS, *_FILES}:
            raise foreign
        if not {_DATABASE, *_ALWAYS} <= {one.name for one in members}:
            raise foreign
        archive.extractall(whole, members, filter="tar")
        for one in members:
            for key, value in one.pax_headers.items():
                if key.startswith(_ATTRIBUTE) and not one.issym():
                    name = key.removeprefix(_ATTRIBUTE)
                    os.setxattr(whole / one.name, name, value.encode(), follow_symlinks=False)
    if not _is_whole(whole / _DATABASE):
        raise foreign


def _is_whole(database: Path) -> bool:
    try:
        with closing(sqlite3.connect(database)) as conn:
            found = conn.execute("PRAGMA quick_check").fetchone()
            conn.execute("SELECT 1 FROM jobs LIMIT 1").fetchall()
    except sqlite3.Error:
        return False
    return bool(found and found[0] == "ok")
