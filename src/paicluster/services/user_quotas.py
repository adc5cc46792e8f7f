"""Quotas of users and groups: limits of running tasks, cores, memory, GPUs and stored bytes.

A user's quota limits the user, a group's quota all its members together. The scheduler keeps jobs within the
first four, the storage keeps files within the last; both read the limits from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from sqlalchemy import Connection

from paicluster.files.usage import StorageLimit, StorageUsage
from paicluster.scheduler.quota_limits import UNLIMITED, HeldResources, QuotaLimit, exceeded_quota
from paicluster.scheduler.resource_requests import ResourceRequest
from paicluster.store import Store, quota_rows
from paicluster.store.rows import QuotaRow
from paiprotocol.errors import Forbidden, StoreError

QUOTA_EXCEEDED = "QuotaExceededError"
Kind = Literal["user", "group"]
# Changes of memberships come one by one; those of this time are read together.
_RELOAD_DELAY_S = 0.2


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
        # Limits of each user that has any: of the user, then of groups.
        self.limits: dict[str, tuple[QuotaLimit, ...]] = {}
        self._apply(store.read_sync(_read))
        # Every change of a membership touches the tokens of the user.
        store.changes.subscribe_tokens(self._on_touched_token)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def change(self, kind: Kind, name: str, limits: Mapping[str, int | None]) -> None:
        """Set these limits (by column) and keep the others; None removes one."""
        write = quota_rows.change_user_quota if kind == "user" else quota_rows.change_group_quota

        def change(conn: Connection) -> _Loaded:
            write(conn, name, limits)
            return _read(conn)

        self._apply(await self._store.write(change))

    def check_job(self, username: str, groupnames: Sequence[str], request: ResourceRequest) -> None:
        """Forbidden for a job that could not start within a quota if nothing else ran."""
        self._note_groups(username, groupnames)
        misfit = exceeded_quota(self.limits.get(username, ()), request)
        if misfit:
            raise Forbidden(
                f"The job can never start within the {misfit}",
                code=QUOTA_EXCEEDED,
                hint="Request less, or ask an administrator for a larger quota. Nothing was submitted.",
            )

    def row(self, kind: Kind, name: str) -> QuotaRow:
        """Quota of one user or group; without limits where it has none."""
        of_kind = self._loaded.of_users if kind == "user" else self._loaded.of_groups
        return of_kind.get(name, QuotaRow())

    def limited_groups(self, username: str) -> tuple[str, ...]:
        """Groups of a user that have a quota."""
        return self._loaded.groups_of.get(username, ())

    def _note_groups(self, username: str, groupnames: Sequence[str]) -> None:
        """Update a user's groups: `_on_touched_token` does not see users without tokens and jobs."""
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
            limits = tuple(limit for limit in limits if min(limit.limit) < UNLIMITED)
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
        quota_rows.user_quotas_by_name(conn),
        quota_rows.group_quotas_by_name(conn),
        quota_rows.groups_with_quota(conn),
    )


def _found(rows: Mapping[str, QuotaRow], name: str) -> list[QuotaRow]:
    return [rows[name]] if name in rows else []


def _running_limit(row: QuotaRow) -> HeldResources:
    limits = (row.tasks, row.cpu, row.memory_mb, row.gpu)
    return HeldResources(*(UNLIMITED if limit is None else limit for limit in limits))
