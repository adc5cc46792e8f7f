"""Which Unix accounts the tasks of this cluster run as, and when that cannot be."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from openpaisdk.errors import ConfigError
from paicluster.config.settings import Settings
from paicluster.engines.common.unix_accounts import Accounts, first_blocked_folder, shared_account_error
from paicluster.engines.interface import LaunchFailed

log = logging.getLogger("paicluster")


def of_settings(settings: Settings, users: Callable[[], int]) -> Accounts | None:
    """None: all tasks run as the server does, because it is one person's or was told so."""
    if settings.embedded or settings.allow_shared_account:
        return None
    return Accounts(settings.accounts, users)


def account_problem(settings: Settings, user: str, users: int) -> str:
    """That the jobs of this user cannot be launched, and what is to be done; empty when they can be."""
    found = of_settings(settings, lambda: users)
    try:
        if found is not None:
            found.of(user)
    except LaunchFailed as failed:
        # A container has users of its own.
        boxed = all(engine.kind == "container" for engine in settings.engines)
        which = f"Jobs of {user} without an image" if boxed else f"The jobs of {user}"
        return f"{which} will wait. {failed.message}"
    return ""


def warn_missing_accounts(settings: Settings, names: Sequence[str]) -> None:
    """Tell the log of users whose jobs will wait. Of `admin`, who need not run any, nothing is said."""
    for name in names:
        if name != "admin" and (hindrance := account_problem(settings, name, len(names))):
            log.warning("%s", hindrance)


def check(settings: Settings, users: int) -> None:
    """Refuse to start where people would be able to read each other's secrets, or jobs could not run."""
    if settings.embedded or users <= 1:
        return
    if settings.allow_shared_account:
        if os.geteuid() == 0:
            log.warning("The jobs of all %d users run as root, and can read everything.", users)
        return
    if not any(engine.kind == "process" for engine in settings.engines):
        return
    if os.geteuid() != 0:
        raise ConfigError(shared_account_error(users))
    if closed := first_blocked_folder(settings.home):
        raise ConfigError(
            f"Jobs run as their users' accounts, to which the way to {settings.home} is closed, at {closed}.",
            hint=f"Choose another home, such as /var/lib/paicluster, or open the way: chmod o+x {closed}",
        )
