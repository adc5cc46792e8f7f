"""Lock on a cluster's home: one server, or one administrator command while no server runs."""

from __future__ import annotations

import fcntl
import os
import pwd
import time
from pathlib import Path
from typing import TextIO

from paiprotocol.errors import ConfigError

_POLL_INTERVAL_S = 0.02


class HomeInUse(ConfigError):
    """Another process holds the lock on the home."""


def lock_home(home: Path, *, timeout_s: float = 0.0) -> TextIO:
    """Lock the home. Closing the file releases the lock; so does the kernel when the process dies.

    ``timeout_s``: how long to wait for it. A program that a killed server was about to start holds its lock
    for a moment.
    """
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
    deadline = time.monotonic() + timeout_s
    while not (is_locked := _try_lock(lock)) and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_S)
    if not is_locked:
        lock.close()
        raise HomeInUse(
            f"Another server is running on {home}.", hint="Stop it first, or choose another --home."
        )
    if owner:
        lock.close()
        raise _owned_by_other(home, owner)
    return lock


def _try_lock(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
