"""Which Unix accounts the tasks of this cluster run as, and when that cannot be."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from openpaisdk.errors import ConfigError
from paicluster.config.settings import Settings
from paicluster.engines.process.accounts import Accounts, closed_way, one_account_only

log = logging.getLogger("paicluster")


def of_settings(settings: Settings, users: Callable[[], int]) -> Accounts | None:
    """None: all tasks run as the server does, because it is one person's or was told so."""
    if settings.embedded or settings.allow_shared_account:
        return None
    return Accounts(settings.accounts, users)


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
        raise ConfigError(one_account_only(users))
    if closed := closed_way(settings.home):
        raise ConfigError(
            f"Jobs run as their users' accounts, to which the way to {settings.home} is closed, at {closed}.",
            hint=f"Choose another home, such as /var/lib/paicluster, or open the way: chmod o+x {closed}",
        )
