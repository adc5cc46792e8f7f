"""Who wants to know that a job changed: the controller hears of every job, a follower of one.

Everything here happens on the event loop's thread; the store publishes after the commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from types import TracebackType

_log = logging.getLogger(__name__)


class Watch:
    """One follower's view of one job. A change between two waits is never missed."""

    __slots__ = ("_changed", "_feed", "_waiter", "job_id")

    def __init__(self, feed: ChangeFeed, job_id: int) -> None:
        self.job_id = job_id
        self._feed = feed
        self._changed = False
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Return once the job has changed since the last wait (or since the watch began).

        For one task at a time. Changes that came together are one.
        """
        if not self._changed:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._changed = False

    def close(self) -> None:
        self._feed._forget(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _notify(self) -> None:
        self._changed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ChangeFeed:
    """Tells subscribers which jobs changed, after the change is on disk."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[int], None]] = {}
        self._watches: dict[int, set[Watch]] = {}

    def publish(self, job_id: int) -> None:
        """Wake everyone who cares about this job. Called on the event loop."""
        for callback in tuple(self._callbacks.values()):
            try:
                callback(job_id)
            except Exception:
                # One subscriber's mistake must not keep the others from hearing of the change.
                _log.exception("a subscriber failed on job %d", job_id)
        for watch in self._watches.get(job_id, ()):
            watch._notify()

    def publish_all(self, job_ids: Iterable[int]) -> None:
        for job_id in job_ids:
            self.publish(job_id)

    def subscribe(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call ``callback(job_id)`` for every changed job; the returned function ends it."""
        key = object()
        self._callbacks[key] = callback

        def unsubscribe() -> None:
            self._callbacks.pop(key, None)

        return unsubscribe

    def watch(self, job_id: int) -> Watch:
        """Begin to watch one job; close the watch (or leave its ``with`` block) when done."""
        watch = Watch(self, job_id)
        self._watches.setdefault(job_id, set()).add(watch)
        return watch

    def _forget(self, watch: Watch) -> None:
        watches = self._watches.get(watch.job_id)
        if watches is None:
            return
        watches.discard(watch)
        if not watches:
            del self._watches[watch.job_id]
