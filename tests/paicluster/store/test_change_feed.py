"""Who hears of a change, and that nobody misses one."""

from __future__ import annotations

import asyncio

import pytest

from paicluster.store import ChangeFeed, Store
from paicluster.store.change_feed import Requests
from paicluster.store.jobs import INSERT_JOB, NewJob, add_event, pending_jobs, set_execution_type, update_job


def job(name: str) -> NewJob:
    return NewJob("alice", name, "default", "", "{}", 1_700_000_000_000)


def test_a_subscriber_hears_of_a_new_job_before_its_submitter_goes_on(store: Store) -> None:
    seen: list[int] = []
    store.changes.subscribe(seen.append)

    async def main() -> None:
        inserted = await store.write_batched(INSERT_JOB, job("a"))
        assert seen == [inserted.id]

    asyncio.run(main())


def test_only_requests_of_somebody_reach_those_who_act_on_them(store: Store) -> None:
    requests: list[Requests] = []
    store.changes.subscribe_requests(requests.append)

    async def main() -> None:
        inserted = await store.write_batched(INSERT_JOB, job("a"))
        # As it would be read from the database, which nobody has to do then.
        (newcomer,) = await store.read(lambda conn: pending_jobs(conn, [inserted.id]))
        await store.write(lambda conn: update_job(conn, inserted.id, sub_state="AttemptRunning"))
        assert requests == [{inserted.id: newcomer}]
        await store.write(lambda conn: set_execution_type(conn, inserted.id, "STOP"))
        assert requests == [{inserted.id: newcomer}, {inserted.id: None}]

    asyncio.run(main())


def test_an_unsubscribed_callback_hears_nothing_more() -> None:
    feed = ChangeFeed()
    seen: list[int] = []
    unsubscribe = feed.subscribe(seen.append)
    feed.publish(1)
    unsubscribe()
    unsubscribe()
    feed.publish(2)
    assert seen == [1]


def test_one_subscribers_mistake_does_not_keep_others_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    feed = ChangeFeed()
    seen: list[int] = []

    def broken(job_id: int) -> None:
        raise RuntimeError("on purpose")

    feed.subscribe(broken)
    feed.subscribe(seen.append)
    feed.publish(1)
    assert seen == [1]
    assert "on purpose" in caplog.text


def test_a_change_between_two_waits_is_not_missed() -> None:
    async def main() -> None:
        feed = ChangeFeed()
        with feed.watch(1) as watch:
            feed.publish(1)
            await asyncio.wait_for(watch.wait(), 1)
            feed.publish(2)
            waiting = asyncio.ensure_future(watch.wait())
            await asyncio.sleep(0)
            assert not waiting.done()
            feed.publish(1)
            feed.publish(1)
            await asyncio.wait_for(waiting, 1)
            quiet = asyncio.ensure_future(watch.wait())
            await asyncio.sleep(0)
            assert not quiet.done()  # both changes were told together
            quiet.cancel()

    asyncio.run(main())


def test_a_wait_that_is_cancelled_does_not_swallow_the_change() -> None:
    async def main() -> None:
        feed = ChangeFeed()
        watch = feed.watch(1)
        waiting = asyncio.ensure_future(watch.wait())
        await asyncio.sleep(0)
        feed.publish(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(watch.wait(), 1)

    asyncio.run(main())


def test_a_closed_watch_leaves_nothing_behind() -> None:
    feed = ChangeFeed()
    watches = [feed.watch(n % 3) for n in range(1000)]
    for watch in watches:
        watch.close()
        watch.close()
    assert not feed._watches


def test_a_watch_may_close_while_it_is_being_told() -> None:
    async def main() -> None:
        feed = ChangeFeed()
        watches = [feed.watch(1) for _ in range(3)]
        feed.subscribe(lambda job_id: watches[1].close())
        feed.publish(1)
        await asyncio.wait_for(watches[0].wait(), 1)

    asyncio.run(main())


def test_a_follower_reads_then_waits_and_sees_every_event(store: Store) -> None:
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
        await asyncio.wait_for(asyncio.gather(*followers), 20)

    asyncio.run(main())
