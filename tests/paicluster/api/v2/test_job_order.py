"""Order of lists of jobs by values: bounded, and kept for some time after it took long."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paicluster.api.jobs.order_cache import OrderCache
from paicluster.api.v2.job_order import ValueOrder, sorted_page, value_order
from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store, jobs
from paicluster.store.job_query import JobQuery
from paicluster.store.jobs import Inserted, NewJob
from paiprotocol.errors import InvalidParameters

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


def page(
    store: Store, query: JobQuery, order: ValueOrder = LR, cache: OrderCache | None = None, **limits: Any
) -> list[int]:
    kept = cache or OrderCache()
    return list(store.read_sync(lambda conn: sorted_page(conn, query, order, kept, **limits))[0])


def test_orders() -> None:
    assert value_order("metric.val,loss.min,DESC") == ValueOrder("val,loss", "min", is_descending=True)
    assert value_order("parameter.a.last,ASC") == ValueOrder("a.last", "", is_descending=False)
    for other in ("", "duration,DESC", "metric.loss,ASC", "metric.loss.min", "parameter.,ASC"):
        assert value_order(other) is None


def test_numbers_are_before_texts_and_jobs_without_a_value_last(store: Store, ids: list[int]) -> None:
    assert [ids.index(one) for one in page(store, JobQuery())] == [4, 3, 1, 0, 2, 6, 5]
    assert [ids.index(one) for one in page(store, JobQuery(offset=3, limit=2))] == [0, 2]


def test_more_jobs_than_the_bound_are_refused(store: Store, ids: list[int]) -> None:
    cache = OrderCache()
    for _ in range(2):
        with pytest.raises(InvalidParameters) as raised:
            page(store, JobQuery(limit=2), cache=cache, max_jobs=len(ids) - 1)
        assert str(raised.value.message) == "At most 6 jobs can be sorted by a parameter or a metric, not 7."
        assert "Filter the jobs" in raised.value.hint
    assert page(store, JobQuery(keyword="job-1"), max_jobs=len(ids) - 1) == [ids[1]]


def test_order_that_takes_too_long_is_refused(store: Store, ids: list[int]) -> None:
    with pytest.raises(InvalidParameters, match="Reading parameter lr of 7 jobs takes longer"):
        page(store, JobQuery(), timeout_s=-1)


def test_order_is_used_for_longer_than_it_took() -> None:
    cache = OrderCache()
    cache.put(JobQuery(), array("q", [1]), took_s=60)
    cache.put(JobQuery(keyword="quick"), array("q", [2]), took_s=0)
    assert cache.get(JobQuery()) == array("q", [1])
    assert cache.get(JobQuery(keyword="quick")) is None
    for number in range(100):
        cache.put(JobQuery(keyword=str(number)), array("q"), took_s=60)
    assert cache.get(JobQuery()) is None
