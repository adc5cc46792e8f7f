"""Count of the bytes that users hold, source archives included: at first need, then from time to time."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from paicluster.files import Storage
from paicluster.files.usage import Count, count_bytes
from paicluster.store import Store, source_owners
from paiprotocol.errors import PaiError

log = logging.getLogger("paicluster.files")

# Tasks write into the storage past the server, so the sums are counted again at this interval.
_INTERVAL_S = 600.0
# After a refusal the next count comes sooner: the sums may have been too large.
_REFUSAL_INTERVAL_S = 10.0
_POLL_INTERVAL_S = 1.0
# Counting takes at most this part of the time: a storage with many files is counted less often.
_MAX_LOAD = 0.05
# How long a request for the sums waits for a count.
_WAIT_TIMEOUT_S = 5.0


class StorageCounter:
    """Counts while some limit needs it, and when the sums are requested."""

    def __init__(self, storage: Storage, store: Store, sources: Path):
        self._storage = storage
        self._store = store
        self._sources = sources
        self._requested: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self._has_limits = asyncio.Event()
        self._counted_at = 0.0
        self._walk: asyncio.Future[Count] | None = None
        self._closing = threading.Event()

    def on_limits_changed(self) -> None:
        """Count from time to time while there are limits; an idle cluster without limits does nothing."""
        if self._storage.usage.has_limits:
            self._has_limits.set()
        else:
            self._has_limits.clear()

    def start(self) -> None:
        self.on_limits_changed()
        self._loop = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop. Its thread must not read folders that are closed next."""
        self._closing.set()
        tasks = [task for task in (self._requested, self._loop) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._walk is not None:
            await asyncio.wait([self._walk])

    async def used_by(self, usernames: Sequence[str]) -> int:
        """Bytes that these users hold together."""
        await self._ensure_counted()
        return self._storage.usage.used_by(usernames)

    async def _ensure_counted(self) -> None:
        """Count unless that was done lately. Does not wait forever: the sums are then older, or too small."""
        if self._storage.usage.is_counted and time.monotonic() - self._counted_at < _INTERVAL_S:
            return
        if self._requested is None or self._requested.done():
            self._requested = asyncio.get_running_loop().create_task(self._count())
        await asyncio.wait([self._requested], timeout=_WAIT_TIMEOUT_S)

    async def _run(self) -> None:
        usage = self._storage.usage
        next_count = 0.0
        while True:
            await self._has_limits.wait()
            now = time.monotonic()
            is_due = now >= next_count or (usage.was_refused and now >= next_count - _INTERVAL_S)
            if is_due:
                usage.was_refused = False
                await self._count()
                took = time.monotonic() - now
                next_count = now + _INTERVAL_S + max(_REFUSAL_INTERVAL_S, took / _MAX_LOAD)
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def _count(self) -> None:
        try:
            sources = await self._count_sources()
            storage = self._storage
            self._walk = asyncio.ensure_future(
                asyncio.to_thread(
                    count_bytes, storage.namespace, storage.staging_area.suspended, self._closing.is_set
                )
            )
            count = await asyncio.shield(self._walk)
        except (PaiError, OSError) as error:
            if self._closing.is_set():
                return
            log.warning("Cannot count the bytes of the storage: %s", error)
            return
        for user, size in sources.items():
            count.by_owner[user] = count.by_owner.get(user, 0) + size
        self._storage.usage.set_counted(count)
        self._counted_at = time.monotonic()

    async def _count_sources(self) -> dict[str, int]:
        owners = await self._store.read(source_owners.all_owners)
        counts: dict[str, int] = {}
        for sha256, username in owners:
            try:
                size = (self._sources / f"{sha256}.tar").stat().st_size
            except FileNotFoundError:
                continue
            counts[username] = counts.get(username, 0) + size
        return counts
