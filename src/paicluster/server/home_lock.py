"""One at a time on a home: a server, or a command of the administrator that works while none runs."""

from __future__ import annotations

import fcntl
import os
import pwd
from pathlib import Path
from typing import TextIO

from openpaisdk.errors import ConfigError


class HomeInUse(ConfigError):
    """Somebody else has the home."""


def lock_home(home: Path) -> TextIO:
    """Closing it lets go of the home; the kernel does so too, whatever happens to us."""
    file = home / "server.lock"
    owner = _other_owner(home)
    # Root leaves nothing behind in somebody's home; a server that runs there is found by the lock.
    if owner and not file.exists():
        raise _of_another(home, owner)
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
        raise _of_another(home, owner)
    return lock


def _other_owner(home: Path) -> str:
    """Whose home it is, where we are root and it is somebody else's; nobody's that has no account here."""
    try:
        owner = home.stat().st_uid
        return pwd.getpwuid(owner).pw_name if os.geteuid() == 0 != owner else ""
    except (OSError, KeyError):
        return ""


def _of_another(home: Path, owner: str) -> ConfigError:
    return ConfigError(
        f"The home {home} belongs to {owner}, who could not use it any more with files of root in it.",
        hint=f"Run it as its owner: sudo -u {owner} paicluster ...; or make it root's: chown -R root {home}",
    )
