"""Keys on disk: made once, readable by us alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from openpaisdk.errors import ConfigError

_SIZE = 32


def load_key(folder: Path, name: str) -> bytes:
    """The key called ``name``; made at the first use. Two that make it at once end up with the same one."""
    path = folder / name
    if not path.exists():
        _make(folder, path)
    return read_key(folder, name)


def read_key(folder: Path, name: str) -> bytes:
    """The key called ``name``, which must be there: whoever looks for a cluster's key must not make one."""
    path = folder / name
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"The key {path} cannot be read: {error.strerror}.") from error
    if len(key) != _SIZE:
        raise ConfigError(
            f"The key {path} is damaged: it has {len(key)} bytes instead of {_SIZE}.",
            hint="Put a backup in its place, or remove it and lose what it protects.",
        )
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
    return key


def _make(folder: Path, path: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = folder / f".{path.name}.{secrets.token_hex(8)}"
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_SIZE))
                file.flush()
                os.fsync(file.fileno())
            # A link is refused when the name is taken: whoever was first wins, and the file is whole.
            os.link(aside, path)
        except FileExistsError:
            pass
        finally:
            aside.unlink(missing_ok=True)
        for directory in (folder, folder.parent):
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise ConfigError(f"The key {path} cannot be made: {error.strerror}.") from error
