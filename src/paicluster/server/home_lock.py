"""Lock on a cluster's home: one server, or one administrator command while no server runs."""

from __future__ import annotations

import fcntl
import os
import pwd
from pathlib import Path
from typing import TextIO

from openpaisdk.errors import ConfigError


class HomeInUse(ConfigError):
    """Another process holds the lock on the home."""


def lock_home(home: Path) -> TextIO:
    """Lock the home. Closing the file releases the lock; so does the kernel when the process dies."""
    file = home / "server.lock"
    owner = _other_owner(home)
    # Root creates no file in another user's home; a server that runs there is detected by its lock.
    if owner and not file.exists():
        raise _owned_by_other(home, owner)
    try:
        lock = file.open("a")
        file.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"The home {home} cannot be used: {error.strerror}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise HomeInUse(
            f"Another server is running on {home}.", hint="Stop it first, or choose another --home."
        ) from None
    if owner:
        lock.close()
        raise _owned_by_other(home, owner)
    return lock


def _other_owner(home: Path) -> str:
    """The home's owner when the process is root and the owner is another account; else empty.

    Also empty when the owner's uid has no account on this machine.
    """
    try:
        owner = home.stat().st_uid
        return pwd.getpwuid(owner).pw_name if os.geteuid() == 0 != owner else ""
    except (OSError, KeyError):
        return ""


def _owned_by_other(home: Path, owner: str) -> ConfigError:
    return ConfigError(
        f"The home {home} belongs to {owner}, who could no longer use it with root's files in it.",
        hint=f"Run it as its owner: sudo -u {owner} paicluster ...; or make it root's: chown -R root {home}",
    )
