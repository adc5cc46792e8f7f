"""Unix accounts that tasks run as, and checks that they exist."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from paicluster.config.settings import Settings
from paicluster.engines.common.unix_accounts import Accounts, first_blocked_folder, shared_account_error
from paicluster.engines.interface import LaunchFailed
from paicluster.store import Store, users
from paiprotocol.errors import ConfigError

log = logging.getLogger("paicluster")


class UserCount:
    """Number of the cluster's users, for engines, which ask for it when they launch a task.

    Built empty: a mistake in the settings of an engine must be found before the database is opened, which may
    create or migrate it. So the engines exist before the store that they ask.
    """

    def __init__(self) -> None:
        self._store: Store | None = None

    def read_from(self, store: Store) -> None:
        """Count the users of this store from now on."""
        self._store = store

    def __call__(self) -> int:
        assert self._store is not None, "No task is launched before the store is open."
        return self._store.read_inline(users.count_users)


def of_settings(settings: Settings, users: Callable[[], int]) -> Accounts | None:
    """The accounts of the settings; None: all tasks run as the server's account.

    That is so on the embedded cluster, which has one user, and with allow-shared-account.
    """
    if settings.embedded or settings.allow_shared_account:
        return None
    return Accounts(settings.accounts, users)


def account_problem(settings: Settings, user: str, users: int) -> str:
    """Why jobs of this user cannot be launched, and what to do; empty when they can."""
    accounts = of_settings(settings, lambda: users)
    try:
        if accounts is not None:
            accounts.of(user)
    except LaunchFailed as failed:
        # A container has users of its own.
        containers_only = all(engine.kind == "container" for engine in settings.engines)
        affected = f"Jobs of {user} without an image" if containers_only else f"The jobs of {user}"
        return f"{affected} will wait. {failed.message}"
    return ""


def warn_missing_accounts(settings: Settings, names: Sequence[str]) -> None:
    """Log a warning for each user whose jobs cannot be launched, except `admin`, who may not run any."""
    for name in names:
        if name != "admin" and (problem := account_problem(settings, name, len(names))):
            log.warning("%s", problem)


def check(settings: Settings, users: int) -> None:
    """Refuse to start when users could read each other's secrets, or when jobs could not run."""
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
    if blocked := first_blocked_folder(settings.home):
        raise ConfigError(
            f"Jobs run as their users' accounts, which cannot reach {settings.home}: "
            f"{blocked} is closed to them.",
            hint=f"Choose another home, such as /var/lib/paicluster, or allow traversal: chmod o+x {blocked}",
        )
