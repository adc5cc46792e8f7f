"""Change feed: notifies the controller of changed jobs, followers of one job, token caches of revocations.

Everything here runs on the event loop's thread; the store publishes after the commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from paicluster.store.rows import PendingJob

_log = logging.getLogger(__name__)

T = TypeVar("T")

Requests = dict[int, PendingJob | None]


class ChangeSet:
    """What a transaction changed, published once it is committed: jobs, and tokens that are no longer valid.

    ``requests`` are jobs that the controller must act on: one with a `PendingJob` is to be run, any other is
    to be checked again, because it is to be stopped. The controller does not wake itself by its own writes.
    """

    __slots__ = ("jobs", "requests", "tokens")

    def __init__(self) -> None:
        self.jobs: dict[int, None] = {}
        self.requests: Requests = {}
        self.tokens: dict[str, None] = {}

    def clear(self) -> None:
        self.jobs, self.requests, self.tokens = {}, {}, {}

    def add(self, other: ChangeSet) -> None:
        self.jobs.update(other.jobs)
        self.requests.update(other.requests)
        self.tokens.update(other.tokens)


class JobWatch:
    """Watch on one job for one follower. A change between two waits is never missed."""

    __slots__ = ("_changed", "_feed", "_waiter", "job_id")

    def __init__(self, feed: ChangeFeed, job_id: int) -> None:
        self.job_id = job_id
        self._feed = feed
        self._changed = False
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Return once the job has changed since the last wait (or since the watch began).

        For one asyncio task at a time. Several changes may be reported as one.
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

    def __enter__(self) -> JobWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def notify(self) -> None:
        """Wake the follower, as a change does."""
        self._changed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ChangeFeed:
    """Notifies subscribers of changed jobs, after the commit."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[int], None]] = {}
        self._request_callbacks: dict[object, Callable[[Requests], None]] = {}
        self._token_callbacks: dict[object, Callable[[str], None]] = {}
        self._watches: dict[int, set[JobWatch]] = {}

    def publish(self, job_id: int) -> None:
        """Notify all subscribers and watches of this job. Called on the event loop."""
        _call(self._callbacks, job_id)
        for watch in self._watches.get(job_id, ()):
            watch.notify()

    def publish_all(self, changes: ChangeSet) -> None:
        """Publish the changes of a commit; tokens first, so that no subscriber acts on a revoked one."""
        for token_id in changes.tokens:
            _call(self._token_callbacks, token_id)
        if changes.requests:
            _call(self._request_callbacks, changes.requests)
        for job_id in changes.jobs:
            self.publish(job_id)

    def subscribe(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call ``callback(job_id)`` for every changed job; the returned function ends it."""
        return _register(self._callbacks, callback)

    def subscribe_requests(self, callback: Callable[[Requests], None]) -> Callable[[], None]:
        """Call ``callback(requests)`` with `ChangeSet.requests` of each commit that has some."""
        return _register(self._request_callbacks, callback)

    def subscribe_tokens(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call ``callback(token_id)`` for every token that was revoked, or whose user changed."""
        return _register(self._token_callbacks, callback)

    def watch(self, job_id: int) -> JobWatch:
        """Start to watch one job; close the watch (or leave its ``with`` block) when done."""
        watch = JobWatch(self, job_id)
        self._watches.setdefault(job_id, set()).add(watch)
        return watch

    def wake_all(self) -> None:
        """Wake every follower although no job has changed."""
        for watches in self._watches.values():
            for watch in watches:
                watch.notify()

    def _forget(self, watch: JobWatch) -> None:
        watches = self._watches.get(watch.job_id)
        if watches is None:
            return
        watches.discard(watch)
        if not watches:
            del self._watches[watch.job_id]


def _register(
    callbacks: dict[object, Callable[[T], None]], callback: Callable[[T], None]
) -> Callable[[], None]:
    key = object()
    callbacks[key] = callback

    def unsubscribe() -> None:
        callbacks.pop(key, None)

    return unsubscribe


def _call(callbacks: dict[object, Callable[[T], None]], value: T) -> None:
    for callback in tuple(callbacks.values()):
        try:
            callback(value)
        except Exception:
            # A failing subscriber must not keep the others from being notified.
            _log.exception("subscriber failed on %r", value)
