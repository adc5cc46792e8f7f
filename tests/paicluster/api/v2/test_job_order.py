"""Order of lists of jobs by values: bounded, and kept for some time after it took long."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from paicluster.api.jobs.order_cache import Order, OrderCache
from paicluster.api.v2.job_order import ValueOrder, page_of_order, read_order, value_order
from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store, jobs
from paicluster.store.job_query import JobQuery
from paicluster.store.jobs import Inserted, NewJob
from paiprotocol.errors import InvalidParameters, TooManyRequests

LR = ValueOrder("lr", "", is_descending=False)


@pytest.fixture(name="store")
def store_of_its_own(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "cluster.db", render_summary)
    yield store
    store.close()


@pytest.fixture(name="ids")
def jobs_with_a_parameter(store: Store) -> list[int]:
    texts = [f'{{"parameters": {{"lr": "{lr}"}}}}' for lr in ("10", "9", "warm", "1e-3", "-inf")]
    new = [
        NewJob("alice", f"job-{at}", "default", "protocolVersion: 2", text, 1_700_000_000_123)
        for at, text in enumerate((*texts, "{}", "no JSON"))
    ]
    made = store.write_sync(lambda conn: jobs.insert_jobs(conn, new))
    return [one.id for one in made if isinstance(one, Inserted)]


def page(store: Store, query: JobQuery, order: ValueOrder = LR, **limits: Any) -> list[int]:
    def read(conn: Connection) -> Sequence[int]:
        found = read_order(conn, query, order, **limits)
        assert not found.problem
        return page_of_order(conn, query, found.ids)[0]

    return list(store.read_sync(read))


def test_orders() -> None:
    assert value_order("metric.val,loss.min,DESC") == ValueOrder("val,loss", "min", is_descending=True)
    assert value_order("parameter.a.last,ASC") == ValueOrder("a.last", "", is_descending=False)
    for other in ("", "duration,DESC", "metric.loss,ASC", "metric.loss.min", "parameter.,ASC"):
        assert value_order(other) is None


def test_numbers_are_before_texts_and_jobs_without_a_value_last(store: Store, ids: list[int]) -> None:
    assert [ids.index(one) for one in page(store, JobQuery())] == [4, 3, 1, 0, 2, 6, 5]
    assert [ids.index(one) for one in page(store, JobQuery(offset=3, limit=2))] == [0, 2]


def test_more_jobs_than_the_bound_are_refused(store: Store, ids: list[int]) -> None:
    most = len(ids) - 1
    found = store.read_sync(lambda conn: read_order(conn, JobQuery(limit=2), LR, max_jobs=most))
    assert found.problem == "At most 6 jobs can be sorted by a parameter or a metric, not 7."
    assert "Filter the jobs" in found.hint
    assert page(store, JobQuery(keyword="job-1"), max_jobs=most) == [ids[1]]


def test_order_that_takes_too_long_is_refused(store: Store, ids: list[int]) -> None:
    found = store.read_sync(lambda conn: read_order(conn, JobQuery(), LR, timeout_s=-1))
    assert found.problem.startswith(f"Reading parameter lr of {len(ids)} jobs takes longer")


class Reader:
    """Returns this order when it may, and counts how often it was read."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.reads = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> Order:
        self.reads += 1
        await self.may_end.wait()
        return self.order


def test_order_is_used_for_longer_than_it_took() -> None:
    async def test() -> None:
        cache = OrderCache()
        slow, quick = Reader(Order(array("q", [1]), took_s=60)), Reader(Order(array("q", [2]), took_s=0))
        slow.may_end.set()
        quick.may_end.set()
        for _ in range(3):
            assert await cache.ids_of(JobQuery(), slow) == array("q", [1])
            assert await cache.ids_of(JobQuery(keyword="quick"), quick) == array("q", [2])
        assert (slow.reads, quick.reads) == (1, 3)
        for number in range(100):
            await cache.ids_of(JobQuery(keyword=str(number)), slow)
        await cache.ids_of(JobQuery(), slow)
        assert slow.reads == 102

    asyncio.run(test())


def test_one_order_is_read_at_a_time_and_kept_ones_do_not_wait() -> None:
    async def test() -> None:
        cache = OrderCache()
        kept, slow, other = (Reader(Order(array("q", [at]), took_s=60)) for at in range(3))
        kept.may_end.set()
        await cache.ids_of(JobQuery(keyword="kept"), kept)
        reads = [asyncio.create_task(cache.ids_of(JobQuery(), slow)) for _ in range(3)]
        reads.append(asyncio.create_task(cache.ids_of(JobQuery(keyword="other"), other)))
        await asyncio.sleep(0)
        assert await cache.ids_of(JobQuery(keyword="kept"), kept) == array("q", [0])
        with pytest.raises(TooManyRequests, match="4 lists of jobs wait"):
            await cache.ids_of(JobQuery(keyword="more"), other, max_waiting=4)
        assert (kept.reads, slow.reads, other.reads) == (1, 1, 0)
        slow.may_end.set()
        other.may_end.set()
        assert [list(found) for found in await asyncio.gather(*reads)] == [[1], [1], [1], [2]]
        assert (slow.reads, other.reads) == (1, 1)

    asyncio.run(test())


def test_problems_are_kept() -> None:
    async def test() -> None:
        cache = OrderCache()
        reader = Reader(Order(array("q"), 60, "too many", "Filter them."))
        reader.may_end.set()
        for _ in range(2):
            with pytest.raises(InvalidParameters) as raised:
                await cache.ids_of(JobQuery(), reader)
            assert (raised.value.message, raised.value.hint) == ("too many", "Filter them.")
        assert reader.reads == 1

    asyncio.run(test())
