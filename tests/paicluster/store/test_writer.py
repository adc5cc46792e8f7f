"""Writer: shared commits, failures, locks, cancellation."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select

from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import BatchOp, Store, sqlite, touch
from paicluster.store.jobs import (
    INSERT_JOB,
    Inserted,
    JobQuery,
    NewJob,
    get_job,
    insert_jobs,
    list_jobs,
    update_job,
)
from paicluster.store.tables import users
from paicluster.store.users import add_user, get_user, list_users
from paiprotocol.errors import Conflict, NotFound, StoreError
from support.database_lock import hold_write_lock

MakeJob = Callable[..., NewJob]


def add(name: str) -> Callable[[Connection], object]:
    return lambda conn: add_user(conn, name, "hash", created_ms=0)


def names(store: Store) -> list[str]:
    return [user.username for user in store.read_sync(list_users)]


@contextmanager
def blocked_writer(store: Store) -> Iterator[None]:
    """Writes inside the block are queued behind a write that ends with the block."""
    held, go_on = threading.Event(), threading.Event()

    def hold(conn: Connection) -> None:
        held.set()
        go_on.wait(90)

    thread = threading.Thread(target=store.write_sync, args=(hold,))
    thread.start()
    held.wait(90)
    try:
        yield
    finally:
        go_on.set()
        thread.join()


async def queued(store: Store, *writes: Callable[[Connection], object]) -> list[object]:
    """Run the writes so that all are in the queue at the same time."""
    with blocked_writer(store):
        tasks = [asyncio.ensure_future(store.write(write)) for write in writes]
        await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_write_returns_the_result_of_its_function(store: Store) -> None:
    async def main() -> None:
        user = await store.write(lambda conn: add_user(conn, "alice", "hash", created_ms=7))
        assert await store.read(lambda conn: get_user(conn, "alice")) == user

    asyncio.run(main())


def test_queued_writes_share_one_commit(store: Store) -> None:
    before = store.commits
    asyncio.run(queued(store, *(add(f"user{n}") for n in range(100))))
    assert len(names(store)) == 100
    assert store.commits - before == 2  # the blocking write, and all others


def test_failed_write_undoes_only_its_own_changes(store: Store) -> None:
    def half(conn: Connection) -> None:
        add_user(conn, "half", "hash", created_ms=0)
        raise LookupError("on purpose")

    async def main() -> None:
        first, failed, last = await queued(store, add("first"), half, add("last"))
        assert isinstance(failed, LookupError)
        assert not isinstance(first, Exception)
        assert not isinstance(last, Exception)

    asyncio.run(main())
    assert names(store) == ["first", "last"]


def test_failed_single_write_leaves_nothing(store: Store) -> None:
    def half(conn: Connection) -> None:
        add_user(conn, "half", "hash", created_ms=0)
        raise LookupError("on purpose")

    with pytest.raises(LookupError):
        store.write_sync(half)
    assert names(store) == []
    store.write_sync(add("next"))
    assert names(store) == ["next"]


def test_sqlalchemy_works_in_writes_and_reads(store: Store) -> None:
    row = {
        "username": "a",
        "password_hash": "h",
        "email": "",
        "admin": True,
        "extension": "{}",
        "created_ms": 0,
    }
    store.write_sync(lambda conn: conn.execute(insert(users).values(row)))
    assert store.read_sync(lambda conn: conn.execute(select(users.c.admin)).scalar()) is True
    store.write_sync(add("b"))
    assert names(store) == ["a", "b"]


def test_items_of_one_kind_are_written_together(store: Store) -> None:
    sizes: list[int] = []

    def run(conn: Connection, items: list[int]) -> list[int | Exception]:
        sizes.append(len(items))
        return [ValueError("odd") if item % 2 else item * 10 for item in items]

    kind = BatchOp("tens", run)

    async def main() -> None:
        with blocked_writer(store):
            tasks = [asyncio.ensure_future(store.write_batched(kind, n)) for n in range(4)]
            tasks.append(asyncio.ensure_future(store.write(add("between"))))
            tasks += [asyncio.ensure_future(store.write_batched(kind, n)) for n in range(4, 6)]
            await asyncio.sleep(0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [r for n, r in enumerate(results) if n != 4 and not isinstance(r, Exception)] == [0, 20, 40]
        assert sum(isinstance(r, ValueError) for r in results) == 3

    asyncio.run(main())
    assert sizes == [6]
    assert names(store) == ["between"]


def test_failed_kind_fails_only_its_items(store: Store) -> None:
    def run(conn: Connection, items: list[str]) -> list[str | Exception]:
        add_user(conn, items[0], "hash", created_ms=0)
        raise LookupError("on purpose")

    kind = BatchOp("broken", run)

    async def main() -> None:
        with blocked_writer(store):
            tasks = [asyncio.ensure_future(store.write_batched(kind, name)) for name in "ab"]
            tasks.append(asyncio.ensure_future(store.write(add("other"))))  # type: ignore[arg-type]
            await asyncio.sleep(0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results[:2]] == [LookupError, LookupError]

    asyncio.run(main())
    assert names(store) == ["other"]


def test_failing_item_does_not_affect_others_of_its_kind(store: Store, new_job: MakeJob) -> None:
    async def main(*concurrent: Callable[[Connection], object]) -> None:
        number = next(numbers)
        jobs = [new_job(f"a{number}"), new_job(f"b{number}", config="\ud800"), new_job(f"c{number}")]
        with blocked_writer(store):
            tasks = [asyncio.ensure_future(store.write_batched(INSERT_JOB, job)) for job in jobs]
            others = [asyncio.ensure_future(store.write(write)) for write in concurrent]
            await asyncio.sleep(0)
        first, bad, last = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*others)
        assert isinstance(bad, UnicodeEncodeError)
        assert isinstance(first, Inserted)
        assert isinstance(last, Inserted)
        assert seen[-2:] == [first.id, last.id]

    numbers = iter(range(9))
    seen: list[int] = []
    store.changes.subscribe(seen.append)
    asyncio.run(main())
    asyncio.run(main(add("concurrent")))
    assert names(store) == ["concurrent"]
    assert store.read_sync(lambda conn: list_jobs(conn, JobQuery(limit=0, with_total=True))).total == 4


def test_integrity_error_does_not_affect_other_writes(store: Store, new_job: MakeJob) -> None:
    store.write_sync(lambda conn: insert_jobs(conn, [new_job("taken")]))

    async def main() -> None:
        jobs = [new_job("a"), new_job("taken"), new_job("b"), new_job("a")]
        with blocked_writer(store):
            tasks = [asyncio.ensure_future(store.write_batched(INSERT_JOB, job)) for job in jobs]
            await asyncio.sleep(0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, Conflict) for result in results] == [False, True, False, True]

    asyncio.run(main())


def test_cancelled_caller_does_not_cancel_its_write(store: Store) -> None:
    async def main() -> None:
        with blocked_writer(store):
            task = asyncio.ensure_future(store.write(add("alice")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await store.write(lambda conn: None)

    asyncio.run(main())
    assert names(store) == ["alice"]


def test_queue_age_grows_while_the_writer_is_blocked(store: Store) -> None:
    assert store.queue_age() == 0
    with blocked_writer(store):
        deadline = time.monotonic() + 90
        while store.queue_age() < 0.02:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    store.write_sync(lambda conn: None)
    assert store.queue_age() < 0.02


def test_close_finishes_queued_writes_and_rejects_later_ones(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "cluster.db", render_summary)

    async def main() -> list[object]:
        tasks = [asyncio.ensure_future(store.write(add(f"user{n}"))) for n in range(50)]
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, store.close)
        with pytest.raises(StoreError):
            await store.write(add("late"))
        with pytest.raises(StoreError):
            await store.read(list_users)
        return await asyncio.gather(*tasks)

    assert len(asyncio.run(main())) == 50
    store.close()  # idempotent
    again = Store.open(tmp_path / "cluster.db", render_summary)
    assert len(names(again)) == 50
    again.close()
    assert not (tmp_path / "cluster.db-wal").exists()


def test_store_serves_several_event_loops(store: Store) -> None:
    for n in range(3):
        asyncio.run(store.write(add(f"user{n}")))
    assert len(names(store)) == 3


def test_reader_cannot_write(store: Store) -> None:
    with pytest.raises(StoreError):
        store.read_sync(lambda conn: sqlite.raw_connection(conn).execute("DELETE FROM users"))
    assert names(store) == []


def test_read_sees_one_snapshot_during_writes(store: Store) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        started, written = asyncio.Event(), threading.Event()

        def twice(conn: Connection) -> tuple[int, int]:
            first = len(list_users(conn))
            loop.call_soon_threadsafe(started.set)
            written.wait(90)
            return first, len(list_users(conn))

        reading = asyncio.ensure_future(store.read(twice))
        await started.wait()
        await store.write(add("alice"))
        written.set()
        assert await reading == (0, 0)
        assert len(await store.read(list_users)) == 1

    asyncio.run(main())


def test_error_of_a_read_reaches_the_caller(store: Store) -> None:
    def fail(conn: Connection) -> None:
        raise NotFound("nothing here")

    with pytest.raises(NotFound):
        store.read_sync(fail)
    with pytest.raises(NotFound):
        asyncio.run(store.read(fail))


def test_thousands_of_concurrent_writes_and_reads(store: Store, new_job: MakeJob) -> None:
    async def one(n: int) -> None:
        inserted = await store.write_batched(INSERT_JOB, new_job(f"job{n}"))
        await store.write(lambda conn: update_job(conn, inserted.id, sub_state="AttemptRunning"))
        job = await store.read(lambda conn: get_job(conn, f"alice~job{n}"))
        assert job is not None
        assert (job.id, job.state) == (inserted.id, "RUNNING")

    async def main() -> None:
        await asyncio.gather(*(one(n) for n in range(1000)))

    before = store.commits
    asyncio.run(main())
    assert store.commits - before < 1000


def test_touched_job_is_published_only_after_a_commit(store: Store) -> None:
    seen: list[int] = []
    store.changes.subscribe(seen.append)

    def fails(conn: Connection) -> None:
        touch(conn, 2)
        raise LookupError

    async def main() -> None:
        await queued(store, lambda conn: touch(conn, 1), fails, lambda conn: touch(conn, 3))

    asyncio.run(main())
    assert sorted(seen) == [1, 3]
    with pytest.raises(LookupError):
        store.write_sync(fails)
    store.write_sync(lambda conn: touch(conn, 4))
    assert sorted(seen) == [1, 3, 4]


@pytest.fixture
def locked_by_another_program(store_in_a_file: Store, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Another program holds the write lock; calling the fixture's value releases it."""
    context = multiprocessing.get_context("spawn")
    locked, release = context.Event(), context.Event()
    process = context.Process(target=hold_write_lock, args=(tmp_path / "cluster.db", locked, release))
    process.start()
    assert locked.wait(90)
    yield release.set
    release.set()
    process.join()


def test_write_waits_while_another_program_holds_the_lock(
    store_in_a_file: Store, locked_by_another_program: Callable[[], None]
) -> None:
    store = store_in_a_file

    async def main() -> None:
        task = asyncio.ensure_future(store.write(add("alice")))
        done, _ = await asyncio.wait([task], timeout=0.2)
        assert not done
        locked_by_another_program()
        await asyncio.wait_for(task, 90)

    asyncio.run(main())
    assert names(store) == ["alice"]


def test_lock_timeout_is_reported_in_one_sentence(
    store_in_a_file: Store, locked_by_another_program: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_in_a_file
    sqlite.raw_connection(store._writer.connection).execute("PRAGMA busy_timeout=50")
    with pytest.raises(StoreError) as raised:
        store.write_sync(add("alice"))
    assert "Another program" in str(raised.value)
    assert "locked" not in str(raised.value)
    locked_by_another_program()
    sqlite.raw_connection(store._writer.connection).execute("PRAGMA busy_timeout=20000")
    store.write_sync(add("alice"))
    assert names(store) == ["alice"]
