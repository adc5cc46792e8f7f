"""Quotas of users and groups: limits of running tasks, cores, memory, GPUs and stored bytes, and their use.

A user's quota limits the user, a group's quota all its members together. The scheduler keeps jobs within the
first four, the storage keeps files within the last; both read the limits from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sqlalchemy import Connection

from openpaisdk.errors import Forbidden, StoreError
from paicluster.files.usage import StorageLimit, StorageUsage
from paicluster.scheduler.quotas import UNLIMITED, QuotaLimit, Running, never_fits
from paicluster.scheduler.resource_requests import ResourceRequest
from paicluster.store import Store, groups, quotas
from paicluster.store.rows import QuotaRow

QUOTA_EXCEEDED = "QuotaExceededError"
Kind = Literal["user", "group"]
# Changes of memberships come one by one; those of this time are read together.
_RELOAD_DELAY_S = 0.2


class Used(NamedTuple):
    """What is used of a resource, and its limit; None: not limited."""

    used: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class QuotaReport:
    """Use of one quota."""

    kind: Kind
    name: str
    tasks: Used
    cpu: Used
    memory_mb: Used
    gpu: Used
    storage_bytes: Used


class _Loaded(NamedTuple):
    of_users: dict[str, QuotaRow]
    of_groups: dict[str, QuotaRow]
    groups_of: dict[str, tuple[str, ...]]


class Quotas:
    """Registry of quotas.

    ``limits`` is updated in place: the scheduler keeps a reference to it. Listeners are called after each
    change.
    """

    def __init__(self, store: Store, storage: StorageUsage):
        self._store = store
        self._storage = storage
        self._loaded = _Loaded({}, {}, {})
        self._listeners: list[Callable[[], None]] = []
        self._reload_timer: asyncio.TimerHandle | None = None
        self._reloads: set[asyncio.Task[None]] = set()
        # Tasks of each user and what they hold.
        self.running: Callable[[], Mapping[str, Running]] = dict
        # Counts the stored bytes, unless that was done.
        self.count_storage: Callable[[], Awaitable[None]] = _nothing_to_count
        # Limits of each user that has any: of the user, then of groups.
        self.limits: dict[str, tuple[QuotaLimit, ...]] = {}
        self._apply(store.read_sync(_read))
        # Every change of a membership touches the tokens of the user.
        store.changes.subscribe_tokens(self._on_touched_token)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def change(self, kind: Kind, name: str, limits: Mapping[str, int | None]) -> None:
        """Set these limits (by column) and keep the others; None removes one."""
        write = quotas.change_user_quota if kind == "user" else quotas.change_group_quota

        def change(conn: Connection) -> _Loaded:
            write(conn, name, limits)
            return _read(conn)

        self._apply(await self._store.write(change))

    def check_job(self, username: str, groupnames: Sequence[str], request: ResourceRequest) -> None:
        """Forbidden for a job that could not start within a quota if nothing else ran."""
        self._note_groups(username, groupnames)
        misfit = never_fits(self.limits.get(username, ()), request)
        if misfit:
            raise Forbidden(
                f"The job can never start within the {misfit}",
                code=QUOTA_EXCEEDED,
                hint="Request less, or ask an administrator for a larger quota. Nothing was submitted.",
            )

    async def reports(self, username: str) -> list[QuotaReport]:
        """Use of the user's own quota, and of those of the user's groups."""
        limited = self._loaded.groups_of.get(username, ())
        return [await self.report("user", username), *[await self.report("group", name) for name in limited]]

    async def report(self, kind: Kind, name: str) -> QuotaReport:
        """Use of one quota. A user or group without a quota has used something of no limit."""
        of_kind = self._loaded.of_users if kind == "user" else self._loaded.of_groups
        row = of_kind.get(name, QuotaRow())
        members = [name] if kind == "user" else await self._members(name)
        running = self.running()
        used = Running()
        for member in members:
            used = used.plus(running.get(member, Running()))
        await self.count_storage()
        stored = self._storage.used_by(members)
        return QuotaReport(
            kind,
            name,
            Used(used.tasks, row.tasks),
            Used(used.cpu, row.cpu),
            Used(used.memory_mb, row.memory_mb),
            Used(used.gpu, row.gpu),
            Used(stored, row.storage_bytes),
        )

    async def _members(self, group: str) -> list[str]:
        return [name for name, _ in await self._store.read(lambda conn: groups.members_of(conn, group))]

    def _note_groups(self, username: str, groupnames: Sequence[str]) -> None:
        """A user without tokens and jobs may have joined a group without a trace in `_on_touched_token`."""
        limited = tuple(sorted(name for name in groupnames if name in self._loaded.of_groups))
        if limited != self._loaded.groups_of.get(username, ()):
            self._apply(self._loaded._replace(groups_of={**self._loaded.groups_of, username: limited}))

    def _on_touched_token(self, token_id: str) -> None:
        if self._loaded.of_groups and self._reload_timer is None:
            loop = asyncio.get_running_loop()
            self._reload_timer = loop.call_later(_RELOAD_DELAY_S, self._start_reload)

    def _start_reload(self) -> None:
        self._reload_timer = None
        task = asyncio.get_running_loop().create_task(self.reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def reload(self) -> None:
        """Read everything again: a user or group was deleted, and the quota with it."""
        try:
            loaded = await self._store.read(_read)
        except StoreError:
            return  # the store is closing, or unreadable: jobs cannot start either
        if loaded != self._loaded:
            self._apply(loaded)

    def close(self) -> None:
        if self._reload_timer is not None:
            self._reload_timer.cancel()
        for task in self._reloads:
            task.cancel()

    def _apply(self, loaded: _Loaded) -> None:
        self._loaded = loaded
        rows_of = {
            username: [
                *((f"user {username}", row) for row in _found(loaded.of_users, username)),
                *(
                    (f"group {group}", row)
                    for group in loaded.groups_of.get(username, ())
                    for row in _found(loaded.of_groups, group)
                ),
            ]
            for username in {*loaded.of_users, *loaded.groups_of}
        }
        # In place and without locks: all readers are on the event loop's thread.
        self.limits.clear()
        for username, rows in rows_of.items():
            limits = tuple(QuotaLimit(owner, _running_limit(row)) for owner, row in rows)
            limits = tuple(one for one in limits if min(one.limit) < UNLIMITED)
            if limits:
                self.limits[username] = limits
        self._storage.set_limits(
            {
                username: limited
                for username, rows in rows_of.items()
                if (
                    limited := tuple(
                        StorageLimit(owner, row.storage_bytes)
                        for owner, row in rows
                        if row.storage_bytes is not None
                    )
                )
            }
        )
        for listener in self._listeners:
            listener()


def _read(conn: Connection) -> _Loaded:
    return _Loaded(
        quotas.user_quotas_by_name(conn), quotas.group_quotas_by_name(conn), quotas.groups_with_quota(conn)
    )


def _found(rows: Mapping[str, QuotaRow], name: str) -> list[QuotaRow]:
    return [rows[name]] if name in rows else []


def _running_limit(row: QuotaRow) -> Running:
    limits = (row.tasks, row.cpu, row.memory_mb, row.gpu)
    return Running(*(UNLIMITED if limit is None else limit for limit in limits))


async def _nothing_to_count() -> None:
    pass
