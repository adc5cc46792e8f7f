"""`paicluster backup` and `paicluster restore`: everything a cluster knows, in one file."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from openpaisdk.errors import ConfigError
from paicluster.store.sqlite import copy_database

# What a cluster cannot do without. Logs and working folders come along with --with-files.
_ALWAYS = ("keys",)
_FILES = ("tasks", "sources")


def backup(arguments: argparse.Namespace) -> int:
    """The database as of one moment, also while the server runs; the keys; the files, if asked for."""
    home, target = Path(arguments.home).expanduser().absolute(), Path(arguments.file).expanduser().absolute()
    if not (home / "cluster.db").is_file():
        raise ConfigError(f"There is no cluster in {home}.")
    aside = target.with_name(target.name + ".part")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            copy = Path(folder) / "cluster.db"
            copy_database(home / "cluster.db", copy)
            # The keys open the secrets: nobody else may read the file.
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as f:
                with tarfile.open(fileobj=f, mode="w") as archive:
                    archive.add(copy, "cluster.db")
                    for name in _ALWAYS + (_FILES if arguments.with_files else ()):
                        if (home / name).exists():
                            archive.add(home / name, name)
                f.flush()
                os.fsync(f.fileno())
        aside.rename(target)
    except OSError as error:
        raise ConfigError(f"The backup could not be written: {error.strerror or error}.") from error
    finally:
        aside.unlink(missing_ok=True)
    print(f"Saved {home} to {target} ({target.stat().st_size >> 10} kB).")
    return 0


def restore(arguments: argparse.Namespace) -> int:
    """Into a home that has no cluster yet: nothing is overwritten."""
    home, source = Path(arguments.home).expanduser().absolute(), Path(arguments.file).expanduser().absolute()
    if (home / "cluster.db").exists():
        raise ConfigError(
            f"There is a cluster in {home} already.", hint="Restore into another home, or move that one away."
        )
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (home / "server.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _unpack(source, home)
    except BlockingIOError:
        raise ConfigError(f"A server is running on {home}.") from None
    except (OSError, tarfile.TarError) as error:
        raise ConfigError(f"{source} could not be restored: {error}.") from error
    print(f"Restored {source} to {home}.")
    return 0


def _unpack(source: Path, home: Path) -> None:
    """Beside the home first, so that a broken file leaves nothing behind; the database comes last."""
    with tempfile.TemporaryDirectory(dir=home) as folder:
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="tar")
        whole = Path(folder)
        if not (whole / "cluster.db").is_file():
            raise ConfigError(f"{source} is no backup of a cluster.")
        for name in (*_ALWAYS, *_FILES):
            if (whole / name).exists():
                shutil.move(whole / name, home / name)
        shutil.move(whole / "cluster.db", home / "cluster.db")
