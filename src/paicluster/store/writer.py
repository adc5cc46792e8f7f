"""Writer: one thread, one connection, one queue. Writes queued during a commit share the next one."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Connection

from paicluster.store.backend import Backend
from paicluster.store.change_feed import ChangeFeed, ChangeSet
from paicluster.store.compiled_statements import execute
from paicluster.store.rows import JobRow, PendingJob, SummaryRenderer
from paiprotocol.errors import StoreError

_log = logging.getLogger(__name__)

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")

# Maximum of operations per commit, so that the first of them does not wait for thousands.
_MAX_BATCH = 512

# Delay to gather more writes, when the last batch had several.
_GATHER_DELAY_S = 0.0004

_CHANGES = "paicluster_changes"
_SUMMARY_RENDERER = "paicluster_summary_renderer"


@dataclass(frozen=True, eq=False)
class BatchOp(Generic[I, R]):
    """A kind of write whose items are written together: N submissions become one statement.

    ``fn(conn, items)`` returns one result or one exception for each item, in order.
    """

    name: str
    fn: Callable[[Connection, list[I]], Sequence[R | Exception]]


CERTIFICATE_HOLDER = "certificate-"


def touch(conn: Connection, job_id: int) -> None:
    """Record that this transaction changes a job; the change feed publishes it after the commit."""
    changes_of(conn).jobs[job_id] = None


def touch_all(conn: Connection, job_ids: Iterable[int]) -> None:
    changes_of(conn).jobs.update(dict.fromkeys(job_ids))


def request_start(conn: Connection, new_jobs: Iterable[PendingJob]) -> None:
    """Record that this transaction adds jobs for the controller to run."""
    changes_of(conn).requests.update({job.id: job for job in new_jobs})


def request_check(conn: Connection, job_id: int) -> None:
    """Record that the controller must check a job again after this transaction."""
    changes_of(conn).requests[job_id] = None


def summary_renderer(conn: Connection) -> SummaryRenderer:
    """The renderer of the store whose connection this is."""
    return cast("SummaryRenderer", conn.info[_SUMMARY_RENDERER])


def no_summary(job: JobRow) -> str:
    """Renderer of a store that is opened for anything but jobs."""
    raise RuntimeError(f"The store of job {job.framework} was opened without a renderer of summaries.")


def touch_tokens(conn: Connection, token_ids: Iterable[str]) -> None:
    """Record that this transaction revokes tokens, or changes their rights."""
    changes_of(conn).tokens.update(dict.fromkeys(token_ids))


def job_token_id(job_id: int, attempt: int) -> str:
    """Id of the token of one attempt of a job; it has no row of its own."""
    return f"job-{job_id}-{attempt}"


def user_holder_id(username: str) -> str:
    """Holder id of a user, for tickets that were issued without a token; no token has such an id."""
    return f"@{username}"


def admin_holder_id(username: str) -> str:
    """Holder id of a user's administrator rights."""
    return f"@@{username}"


def certificate_holder_id(serial: str) -> str:
    """Holder id of a user's certificate; no token has such an id."""
    return f"{CERTIFICATE_HOLDER}{serial}"


def changes_of(conn: Connection) -> ChangeSet:
    """What the transaction on this connection has changed so far."""
    changes = conn.info.get(_CHANGES)
    if changes is None:
        changes = conn.info[_CHANGES] = ChangeSet()
    return cast("ChangeSet", changes)


class _Op:
    """A queued write and its waiter: a future of ``loop``, or a thread when there is none."""

    __slots__ = ("error", "fn", "item", "kind", "loop", "queued", "result", "waiter")

    def __init__(
        self,
        fn: Callable[[Connection], Any] | None,
        kind: BatchOp[Any, Any] | None,
        item: Any,
        loop: asyncio.AbstractEventLoop | None,
        waiter: Any,
    ) -> None:
        self.fn = fn
        self.kind = kind
        self.item = item
        self.loop = loop
        self.waiter = waiter
        self.queued = time.monotonic()
        self.result: Any = None
        self.error: Exception | None = None


class _SyncWaiter:
    """A thread that waits for its write; it publishes the changes of the batch when no loop does."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.changes = ChangeSet()


class Writer:
    """Owns the writing connection. :class:`paicluster.store.Store` is its only user."""

    def __init__(
        self, conn: Connection, backend: Backend, feed: ChangeFeed, render_summary: SummaryRenderer
    ) -> None:
        self._backend = backend
        self._render_summary = render_summary
        self._use(conn)
        self._feed = feed
        self._pending: deque[_Op] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._idle = False
        self._closing = False
        self._oldest: float | None = None
        self.commits = 0
        # Why the last write failed, if it did.
        self.failure: StoreError | None = None
        self._had_company = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def connection(self) -> Connection:
        return self._conn

    def _use(self, conn: Connection) -> None:
        self._conn = conn
        conn.info[_SUMMARY_RENDERER] = self._render_summary

    # -- on the callers' threads ------------------------------------------------------------------

    def submit(
        self,
        fn: Callable[[Connection], Any] | None,
        kind: BatchOp[Any, Any] | None = None,
        item: Any = None,
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._enqueue(_Op(fn, kind, item, loop, future))
        return future

    def submit_and_wait(self, fn: Callable[[Connection], Any]) -> Any:
        waiter = _SyncWaiter()
        op = _Op(fn, None, None, None, waiter)
        self._enqueue(op)
        waiter.done.wait()
        self._feed.publish_all(waiter.changes)
        if op.error is not None:
            raise op.error
        return op.result

    def queue_age(self) -> float:
        """Seconds the oldest write has been queued."""
        oldest = self._oldest
        if oldest is None:
            try:
                oldest = self._pending[0].queued
            except IndexError:
                return 0.0
        return max(0.0, time.monotonic() - oldest)

    def close(self) -> None:
        """Finish the queued writes, then end the thread."""
        self._closing = True
        self._wake.put(None)
        self._thread.join()

    def _enqueue(self, op: _Op) -> None:
        if self._closing:
            raise StoreError("The cluster's database is closed.", status=503)
        self._pending.append(op)
        # The thread sets `_idle` before it checks the queue a last time, so that either it sees this
        # operation or we see it idle.
        if self._idle:
            self._wake.put(None)

    # -- on the writer's thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._write_batches()
        except BaseException as error:
            # Without its writer the server would accept requests and answer none of them.
            _exit_process(error, self._backend.name)

    def _write_batches(self) -> None:
        while True:
            batch = self._take()
            if not batch:
                return
            changes = ChangeSet()
            try:
                changes = self._commit_and_recover(batch)
            except Exception as error:
                failure = self._backend.as_pai_error(error)
                if failure is None:
                    _log.exception("batch of %d writes failed", len(batch))
                    failure = StoreError(f"The cluster's database could not be written ({error}).")
                for op in batch:
                    op.result, op.error = None, failure
            self._deliver(batch, changes)
            self._oldest = None

    def _take(self) -> list[_Op]:
        """Wait for work; everything queued by then, up to the limit. Empty when closed and drained."""
        pending = self._pending
        while not pending:
            self._idle = True
            if not pending:
                if self._closing:
                    return []
                self._wake.get()
            self._idle = False
        if self._had_company:
            # There were concurrent writes and will be again: one commit for all costs less than several, and
            # no caller waits longer for it.
            time.sleep(_GATHER_DELAY_S)
        self._oldest = pending[0].queued
        batch = [pending.popleft() for _ in range(min(len(pending), _MAX_BATCH))]
        self._had_company = len(batch) > 1
        return batch

    def _commit_and_recover(self, batch: list[_Op]) -> ChangeSet:
        """Run a batch; after a failure that passes, such as a lost connection, repeat it."""
        attempt = 0
        while True:
            changes = ChangeSet()
            try:
                return self._commit(batch, changes)
            except Exception as error:
                attempt += 1
                if not self._backend.is_passing(error):
                    raise
                recovery = self._backend.recover_writer(self._conn, error, attempt)
                if recovery is None:
                    raise
                if recovery.conn is not self._conn:
                    self._use(recovery.conn)
                if recovery.is_committed:
                    self.commits += 1
                    return changes
                for op in batch:
                    op.result, op.error = None, None

    def _commit(self, batch: list[_Op], changes: ChangeSet) -> ChangeSet:
        """Run a batch in one transaction; ``changes`` are its changes, once committed."""
        conn = self._conn
        units = _units(batch)
        conn.info[_CHANGES] = changes
        self._backend.begin(conn)
        try:
            if len(units) > 1:
                for unit in units:
                    self._run_guarded(unit, changes)
            elif not _run_unit(conn, units[0]):
                # A single unit needs no savepoint: rolling everything back is the same.
                self._raise_passing(units[0])
                self._backend.rollback(conn)
                changes.clear()
                if not self._divisible(units[0]):
                    self._translate_errors(units[0])
                    return changes
                self._backend.begin(conn)
                self._run_separately(units[0], changes)
            self._backend.commit(conn)
        except BaseException:
            # Leave the connection clean after any error: the next batch must find it usable.
            self._backend.rollback(conn)
            raise
        self.commits += 1
        return changes

    def _raise_passing(self, unit: list[_Op]) -> None:
        """Raise an error that is not the write's own: all of the batch is to be repeated."""
        error = unit[0].error
        if error is not None and self._backend.is_passing(error):
            raise error

    def _run_guarded(self, unit: list[_Op], changes: ChangeSet) -> None:
        """Run one unit inside a savepoint, so that a failure undoes only its own changes."""
        conn = self._conn
        unit_changes = conn.info[_CHANGES] = ChangeSet()
        execute(conn, "SAVEPOINT unit")
        if _run_unit(conn, unit):
            execute(conn, "RELEASE SAVEPOINT unit")
            changes.add(unit_changes)
            return
        self._raise_passing(unit)
        if self._backend.transaction_lost(conn):
            raise unit[0].error or StoreError("The cluster's database rolled back a transaction.")
        execute(conn, "ROLLBACK TO SAVEPOINT unit")
        execute(conn, "RELEASE SAVEPOINT unit")
        if self._divisible(unit):
            self._run_separately(unit, changes)
        else:
            self._translate_errors(unit)

    def _divisible(self, unit: list[_Op]) -> bool:
        """Whether running the items one by one may help: one of them failed, not the disk."""
        error = unit[0].error
        return (
            len(unit) > 1
            and error is not None
            and not isinstance(self._backend.as_pai_error(error), StoreError)
        )

    def _run_separately(self, unit: list[_Op], changes: ChangeSet) -> None:
        """Run each item separately, so that only the one that raises is rejected."""
        for op in unit:
            op.error = None
            self._run_guarded([op], changes)

    def _translate_errors(self, unit: list[_Op]) -> None:
        for op in unit:
            if op.error is not None:
                op.error = self._backend.as_pai_error(op.error) or op.error

    def _deliver(self, batch: list[_Op], changes: ChangeSet) -> None:
        self.failure = next((op.error for op in batch if isinstance(op.error, StoreError)), None)
        by_loop: dict[asyncio.AbstractEventLoop, list[_Op]] = {}
        sync: list[_Op] = []
        for op in batch:
            if op.loop is None:
                sync.append(op)
            else:
                by_loop.setdefault(op.loop, []).append(op)
        for loop, ops in by_loop.items():
            try:
                loop.call_soon_threadsafe(self._resolve, ops, changes)
            except RuntimeError:
                continue  # the loop is closed: no caller is waiting
            changes = ChangeSet()
        for op in sync:
            op.waiter.changes, changes = changes, ChangeSet()
            op.waiter.done.set()

    def _resolve(self, ops: list[_Op], changes: ChangeSet) -> None:
        """On the loop: resolve the futures of the batch, and publish its changes."""
        for op in ops:
            if op.waiter.done():
                continue  # the caller was cancelled; the write is kept
            if op.error is not None:
                op.waiter.set_exception(op.error)
            else:
                op.waiter.set_result(op.result)
        self._feed.publish_all(changes)


def _exit_process(error: BaseException, database: str) -> None:
    """End the process at once. Tasks keep running, and the next server adopts them."""
    _log.critical("The database writer failed:", exc_info=error)
    sys.stderr.write(
        f"paicluster: The writer of the database {database} failed ({type(error).__name__}: {error}); "
        "the process exits.\nStart the server again; its log has the details.\n"
    )
    sys.stderr.flush()
    os._exit(1)


def _units(batch: list[_Op]) -> list[list[_Op]]:
    """Groups of operations that are undone together: each plain write alone, all items of one kind as one."""
    units: list[list[_Op]] = []
    kinds: dict[int, list[_Op]] = {}
    for op in batch:
        if op.kind is None:
            units.append([op])
            continue
        unit = kinds.get(id(op.kind))
        if unit is None:
            unit = kinds[id(op.kind)] = []
            units.append(unit)
        unit.append(op)
    return units


def _run_unit(conn: Connection, unit: list[_Op]) -> bool:
    """Run a unit and set the result of each write; False when its changes must be rolled back."""
    kind = unit[0].kind
    try:
        if kind is None:
            fn = unit[0].fn
            if fn is not None:
                unit[0].result = fn(conn)
            return True
        results = kind.fn(conn, [op.item for op in unit])
        for op, result in zip(unit, results, strict=True):
            if isinstance(result, Exception):
                op.error = result
            else:
                op.result = result
    except Exception as error:
        for op in unit:
            op.result, op.error = None, error
        return False
    return True
