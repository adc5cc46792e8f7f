"""Turns of followers: of hundreds that a change wakes, few read in one iteration of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter

from paicluster.api.jobs.follow_turns import PER_ITERATION, FollowTurns

FOLLOWERS = 300


def test_few_followers_read_in_one_iteration() -> None:
    async def test() -> Counter[int]:
        turns = FollowTurns()
        reads: Counter[int] = Counter()
        iteration = 0

        async def count_iterations() -> None:
            nonlocal iteration
            while True:
                iteration += 1
                await asyncio.sleep(0)

        async def follow() -> None:
            await turns.take()
            reads[iteration] += 1

        counter = asyncio.create_task(count_iterations())
        await asyncio.gather(*(follow() for _ in range(FOLLOWERS)))
        counter.cancel()
        return reads

    reads = asyncio.run(test())
    assert sum(reads.values()) == FOLLOWERS
    assert max(reads.values()) <= 2 * PER_ITERATION


def test_disconnected_follower_keeps_no_other_waiting() -> None:
    async def test() -> None:
        turns = FollowTurns()
        waiting = [asyncio.create_task(turns.take()) for _ in range(FOLLOWERS)]
        await asyncio.sleep(0)
        for task in waiting[::2]:
            task.cancel()
        done = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 90)
        assert sum(result is None for result in done) >= FOLLOWERS // 2

    asyncio.run(test())


def test_single_follower_does_not_wait() -> None:
    async def test() -> None:
        turns = FollowTurns()
        for _ in range(3 * PER_ITERATION):
            taking = asyncio.ensure_future(turns.take())
            await asyncio.sleep(0)
            assert taking.done()

    asyncio.run(test())
