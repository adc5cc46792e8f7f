"""Whose Unix account runs whose tasks.

A server that is root runs each task as its user's own account. One that is not can only be one person's.
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

_FRESH_S = 30.0
# Below are the accounts of the system's own services, on every distribution that says nothing else.
_FIRST_PERSON = 1000
_NUMBERS = re.compile(r"(\d+)(?::(\d+))?")
# What in a home is nobody's business but the server's, by how it is called.
_CLUSTERS_OWN = re.compile(r"(server|audit|cluster)\..*|keys|run|sources|backups")
# What belongs to the account of the server and not to that of a task.
_SERVERS_OWN = ("HOME", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Account:
    """Who a task runs as. ``home`` empty: it has none, and its working folder is it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str = ""
    shell: str = "/bin/sh"

    def as_spec(self) -> dict[str, object]:
        """What the supervisor is told."""
        return {"uid": self.uid, "gid": self.gid, "groups": list(self.groups)}

    def environment(self) -> dict[str, str]:
        """What a login would set."""
        found = {"USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}
        return {**found, "HOME": self.home} if self.home else found


class Accounts:
    """The accounts of users: the one of the same name, or the one that ``mapped`` names.

    ``users`` counts the users of the cluster. While there is but one, his tasks may run as the server does.
    """

    def __init__(self, mapped: Mapping[str, str], users: Callable[[], int]):
        self._mapped = mapped
        self._users = users
        # Where accounts come from may be far away, and a user has many jobs.
        self._found: dict[str, tuple[float, Account]] = {}

    def of(self, user: str) -> Account | None:
        """Who this user's tasks run as; None: as the server. LaunchFailed says what is to be done."""
        when, known = self._found.get(user, (0.0, None))
        if known is not None and time.monotonic() - when < _FRESH_S:
            return known
        found = self._look_up(user)
        if found is not None:
            self._found[user] = (time.monotonic(), found)
        return found

    def _look_up(self, user: str) -> Account | None:
        if os.geteuid() != 0:
            if self._users() > 1:
                raise LaunchFailed(shared_account_error(self._users()))
            return None
        if user in self._mapped:
            return self._named(user, self._mapped[user])
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            if self._users() <= 1:
                return None
            raise LaunchFailed(
                f"There is no Unix account for user {user} on this machine. The administrator can make one "
                f"called {user} (useradd {user}), or name another under 'accounts' in the cluster's file."
            ) from None
        if entry.pw_uid < _FIRST_PERSON:
            if self._users() <= 1:
                return None
            raise LaunchFailed(
                f"The Unix account {user} belongs to the system, not to a person: no job runs as it. "
                "The administrator can name another under 'accounts' in the cluster's file."
            )
        return _of_entry(entry)

    def _named(self, user: str, wanted: str) -> Account:
        if numbers := _NUMBERS.fullmatch(wanted):
            uid = int(numbers[1])
            try:
                account = _of_entry(pwd.getpwuid(uid))
            except KeyError:
                gid = int(numbers[2] or numbers[1])
                return Account(user, uid, gid, (gid,))
            return account if numbers[2] is None else replace(account, gid=int(numbers[2]))
        try:
            return _of_entry(pwd.getpwnam(wanted))
        except KeyError:
            raise LaunchFailed(
                f"There is no Unix account {wanted} on this machine, as which the jobs of user {user} are to "
                f"run. The administrator can make it (useradd {wanted}), or name another under 'accounts' in "
                "the cluster's file."
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
    """The tasks with the account's own variables in place of the server's."""
    own = account.environment()
    # What a gang has in common is one object for all of it, and stays that.
    common: dict[int, dict[str, str]] = {}
    dressed = []
    for task in gang:
        key = id(task.shared_environment)
        if key not in common:
            common[key] = {
                name: value for name, value in task.shared_environment.items() if name not in _SERVERS_OWN
            }
            common[key].update(own)
        environment = {name: value for name, value in task.environment.items() if name not in own}
        dressed.append(replace(task, shared_environment=common[key], environment=environment))
    return dressed


def allow_traversal(home: Path, inner: Sequence[Path]) -> None:
    """Let other accounts pass through an engine's home to what is theirs in it, and see nothing else."""
    # A second engine has its own home in that of the cluster.
    cluster = home.parent if (home.parent / "server.lock").exists() else home
    if closed := first_blocked_folder(cluster):
        raise LaunchFailed(
            f"Other accounts cannot reach the cluster's files in {cluster}: the folder {closed} is closed to "
            "them. The administrator can move the home to where others may pass, such as /var/lib/paicluster."
        )
    # A home that an older version made was closed as a whole, and open inside.
    for path in cluster.iterdir():
        if _CLUSTERS_OWN.fullmatch(path.name):
            path.chmod(path.stat().st_mode & 0o700)
    for path in (cluster, home, *inner):
        path.chmod(0o711)


def first_blocked_folder(folder: Path) -> Path | None:
    """The first folder on the way to this one that other accounts may not pass; None: they get there."""
    for one in reversed(folder.resolve().parents):
        if not one.stat().st_mode & 0o001:
            return one
    return None
