"""Unix accounts of tasks.

A server that runs as root starts each task under its user's own account. Otherwise all tasks run under the
server's account, which is safe with one user only.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paicluster.engines.interface import LaunchFailed, TaskLaunch

_CACHE_TTL_S = 30.0
# Lower uids belong to system services, by the default of every distribution.
_MIN_USER_UID = 1000
_NUMBERS = re.compile(r"(\d+)(?::(\d+))?")
# Names in a cluster's home that only the server may read.
_SERVER_ONLY = re.compile(r"(server|audit|cluster)\..*|keys|run|sources|backups")
# Variables of the server's account, not of a task's.
_SERVER_VARIABLES = ("HOME", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Account:
    """The Unix account of a task. ``home`` empty: HOME is the working folder."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str = ""
    shell: str = "/bin/sh"

    def as_spec(self) -> dict[str, object]:
        """The account, as a part of the supervisor's spec."""
        return {"uid": self.uid, "gid": self.gid, "groups": list(self.groups)}

    def environment(self) -> dict[str, str]:
        """Variables that a login sets."""
        variables = {"USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}
        return {**variables, "HOME": self.home} if self.home else variables


class Accounts:
    """Accounts of users: the one of the same name, or the one that ``mapped`` names.

    ``users`` counts the users of the cluster. The tasks of a single user may run under the server's account.
    """

    def __init__(self, mapped: Mapping[str, str], users: Callable[[], int]):
        self._mapped = mapped
        self._users = users
        # Account lookups may go over the network, and a user has many jobs.
        self._cache: dict[str, tuple[float, Account]] = {}

    def of(self, user: str) -> Account | None:
        """Account of a user's tasks; None: the server's. LaunchFailed says what the administrator can do."""
        when, known = self._cache.get(user, (0.0, None))
        if known is not None and time.monotonic() - when < _CACHE_TTL_S:
            return known
        account = self._look_up(user)
        if account is not None:
            self._cache[user] = (time.monotonic(), account)
        return account

    def _look_up(self, user: str) -> Account | None:
        if os.geteuid() != 0:
            if self._users() > 1:
                raise LaunchFailed(shared_account_error(self._users()))
            return None
        if user in self._mapped:
            return self._mapped_account(user, self._mapped[user])
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            if self._users() <= 1:
                return None
            raise LaunchFailed(
                f"There is no Unix account for user {user} on this machine. The administrator can create it "
                f"(useradd {user}), or name another one under 'accounts' in the cluster's file."
            ) from None
        if entry.pw_uid < _MIN_USER_UID:
            if self._users() <= 1:
                return None
            raise LaunchFailed(
                f"The Unix account {user} is a system account: no job runs as it. "
                "The administrator can name another one under 'accounts' in the cluster's file."
            )
        return _of_entry(entry)

    def _mapped_account(self, user: str, name: str) -> Account:
        if numbers := _NUMBERS.fullmatch(name):
            uid = int(numbers[1])
            try:
                account = _of_entry(pwd.getpwuid(uid))
            except KeyError:
                gid = int(numbers[2] or numbers[1])
                return Account(user, uid, gid, (gid,))
            return account if numbers[2] is None else replace(account, gid=int(numbers[2]))
        try:
            return _of_entry(pwd.getpwnam(name))
        except KeyError:
            raise LaunchFailed(
                f"The Unix account {name}, configured for the jobs of user {user}, does not exist on this "
                f"machine. The administrator can create it (useradd {name}), or name another one under "
                "'accounts' in the cluster's file."
            ) from None


def shared_account_error(users: int) -> str:
    name = _own_name()
    return (
        f"This cluster has {users} users, and all their jobs would run as the account {name}, where they can "
        "read each other's files and secrets. The administrator can run the server as root, so that each job "
        "runs as its user's own account, or permit it with allow-shared-account."
    )


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _of_entry(entry: pwd.struct_passwd) -> Account:
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    home = entry.pw_dir if Path(entry.pw_dir).is_dir() else ""
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, home, entry.pw_shell or "/bin/sh")


def with_account_environment(gang: Sequence[TaskLaunch], account: Account) -> list[TaskLaunch]:
    """The tasks with the account's variables instead of the server's."""
    own = account.environment()
    # Shared variables are one object for all tasks of a gang, and stay one.
    shared: dict[int, dict[str, str]] = {}
    changed = []
    for task in gang:
        key = id(task.shared_environment)
        if key not in shared:
            shared[key] = {
                name: value
                for name, value in task.shared_environment.items()
                if name not in _SERVER_VARIABLES
            }
            shared[key].update(own)
        environment = {name: value for name, value in task.environment.items() if name not in own}
        changed.append(replace(task, shared_environment=shared[key], environment=environment))
    return changed


def allow_traversal(home: Path, inner: Sequence[Path]) -> None:
    """Let other accounts traverse an engine's home to their own folders, without reading anything else."""
    # A second engine has its own home in that of the cluster.
    cluster = home.parent if (home.parent / "server.lock").exists() else home
    if blocked := first_blocked_folder(cluster):
        raise LaunchFailed(
            f"Other accounts cannot reach the cluster's files in {cluster}: the folder {blocked} is closed "
            "to them. The administrator can move the home to a folder that they can traverse, such as "
            "/var/lib/paicluster."
        )
    # An older version closed the home as a whole and left its content open.
    for path in cluster.iterdir():
        if _SERVER_ONLY.fullmatch(path.name):
            path.chmod(path.stat().st_mode & 0o700)
    for path in (cluster, home, *inner):
        path.chmod(0o711)


def first_blocked_folder(folder: Path) -> Path | None:
    """The first parent folder that other accounts may not traverse; None if they can reach this folder."""
    for parent in reversed(folder.resolve().parents):
        if not parent.stat().st_mode & 0o001:
            return parent
    return None
