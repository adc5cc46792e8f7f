"""One at a time on a home: a server, or a command of the administrator that works while none runs."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TextIO

from openpaisdk.errors import ConfigError


class HomeInUse(ConfigError):
    """Somebody else has the home."""


def lock_home(home: Path) -> TextIO:
    """Closing it lets go of the home; the kernel does so too, whatever happens to us."""
    try:
        lock = (home / "server.lock").open("a")
        (home / "server.lock").chmod(0o600)
    except OSError as error:
        raise ConfigError(f"The home {home} cannot be used: {error.strerror}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise HomeInUse(
            f"Another server is running on {home}.", hint="Stop it first, or choose another --home."
        ) from None
    return lock
