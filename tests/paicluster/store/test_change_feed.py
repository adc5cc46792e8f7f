"""Change feed: subscribers and watches miss no change."""

from __future__ import annotations

import asyncio

import pytest

from paicluster.store import ChangeFeed, Store
from paicluster.store.change_feed import Requests
from paicluster.store.jobs import INSERT_JOB, NewJob, add_event, pending_jobs, set_execution_type, update_job


def job(name: str) -> NewJob:
    return NewJob("alice", name, "default", "", "{}", 1_700_000_000_000)


def test_subscriber_is_notified_before_the_submitter(store: Store) -> None:
    seen: list[int] = []
    store.changes.subscribe(seen.append)

    async def main() -> None:
        inserted = await store.write_batched(INSERT_JOB, job("a"))
        assert seen == [inserted.id]

    asyncio.run(main())


def test_only_requests_reach_request_subscribers(store: Store) -> None:
    requests: list[Requests] = []
    store.changes.subscribe_requests(requests.append)

    async def main() -> None:
        inserted = await store.write_batched(INSERT_JOB, job("a"))
        # As it would be read from the database, which saves that read.
        (newcomer,) = await store.read(lambda conn: pending_jobs(conn, [inserted.id]))
        await store.write(lambda conn: update_job(conn, inserted.id, sub_state="AttemptRunning"))
        assert requests == [{inserted.id: newcomer}]
        await store.write(lambda conn: set_execution_type(conn, inserted.id, "STOP"))
        assert requests == [{inserted.id: newcomer}, {inserted.id: None}]

    asyncio.run(main())


def test_unsubscribed_callback_is_not_called() -> None:
    feed = ChangeFeed()
    seen: list[int] = []
    unsubscribe = feed.subscribe(seen.append)
    feed.publish(1)
    unsubscribe()
    unsubscribe()
    feed.publish(2)
    assert seen == [1]


def test_failing_subscriber_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    feed = ChangeFeed()
    seen: list[int] = []

    def broken(job_id: int) -> None:
        raise RuntimeError("on purpose")

    feed.subscribe(broken)
    feed.subscribe(seen.append)
    feed.publish(1)
    assert seen == [1]
    assert "on purpose" in caplog.text


def test_change_between_two_waits_is_not_missed() -> None:
    async def main() -> None:
        feed = ChangeFeed()
        with feed.watch(1) as watch:
            feed.publish(1)
            await asyncio.wait_for(watch.wait(), 90)
            feed.publish(2)
            waiting = asyncio.ensure_future(watch.wait())
            await asyncio.sleep(0)
            assert not waiting.done()
            feed.publish(1)
            feed.publish(1)
            await asyncio.wait_for(waiting, 90)
            quiet = asyncio.ensure_future(watch.wait())
            await asyncio.sleep(0)
            assert not quiet.done()  # both changes were reported together
            quiet.cancel()

    asyncio.run(main())


def test_cancelled_wait_does_not_lose_the_change() -> None:
    async def main() -> None:
        feed = ChangeFeed()
        watch = feed.watch(1)
        waiting = asyncio.ensure_future(watch.wait())
        await asyncio.sleep(0)
        feed.publish(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(watch.wait(), 90)

    asyncio.run(main())


def test_closed_watch_is_forgotten() -> None:
    feed = ChangeFeed()
    watches = [feed.watch(n % 3) for n in range(1000)]
    for watch in watches:
        watch.close()
        watch.close()
    assert not feed._watches


def test_watch_may_close_during_a_notification() -> None:
    async def main() -> None:
        feed = ChangeFeed()
        watches = [feed.watch(1) for _ in range(3)]
        feed.subscribe(lambda job_id: watches[1].close())
        feed.publish(1)
        # All but the closed one are notified.
        notified = [await asyncio.wait_for(watch.wait(), 90) for watch in (watches[0], watches[2])]
        assert len(notified) == 2

    asyncio.run(main())


def test_follower_sees_every_event(store: Store) -> None:
    async def main() -> None:
        inserted = await store.write_batched(INSERT_JOB, job("a"))
        seen = 0

        async def follow() -> None:
            nonlocal seen
            with store.changes.watch(inserted.id) as watch:
                while seen < 50:
                    seen = await store.read(
                        lambda conn: conn.exec_driver_sql("SELECT count(*) FROM events").scalar() or 0
                    )
                    if seen < 50:
                        await watch.wait()

        followers = [asyncio.ensure_future(follow()) for _ in range(20)]
        for n in range(50):
            await store.write(
                lambda conn, n=n: add_event(  # type: ignore[misc]
                    conn, inserted.id, type="Normal", reason="R", message=str(n), now_ms=n, source="test"
                )
            )
        await asyncio.wait_for(asyncio.gather(*followers), 90)
        assert seen == 50

    asyncio.run(main())
