"""Key files: created once, readable by the server's account only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from paiprotocol.errors import ConfigError

_SIZE = 32


def load_key(folder: Path, name: str) -> bytes:
    """The key ``name``, created on first use. Concurrent creators end up with the same key."""
    path = folder / name
    if not path.exists():
        _create(folder, path)
    return read_key(folder, name)


def read_key(folder: Path, name: str) -> bytes:
    """The key ``name``, which must exist: a command that reads a cluster's key must not create one."""
    path = folder / name
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"The key {path} cannot be read: {error.strerror}.") from error
    if len(key) != _SIZE:
        raise ConfigError(
            f"The key {path} is damaged: it has {len(key)} bytes instead of {_SIZE}.",
            hint="Restore it from a backup, or remove it and lose what it protects.",
        )
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
    return key


def _create(folder: Path, path: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = folder / f".{path.name}.{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_SIZE))
                file.flush()
                os.fsync(file.fileno())
            # A link fails if the name exists: the first creator wins, and the file is complete.
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink(missing_ok=True)
        for directory in (folder, folder.parent):
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise ConfigError(f"The key {path} cannot be created: {error.strerror}.") from error
