"""Cache of large job details: entries are valid until their job changes."""

from __future__ import annotations

import json

from paicluster.api.jobs.detail_cache import ResponseCache
from support.server_fixture import job
from support.team_cluster import TeamCluster

BODY = b"x" * 100


def test_response_is_cached_until_its_job_changes() -> None:
    cache = ResponseCache(min_bytes=10, max_bytes=1000)
    cache.put(("a~b", None), 1, BODY, cache.version())
    cache.put(("a~b", 0), 1, BODY, cache.version())
    cache.put(("a~c", None), 2, BODY, cache.version())
    assert cache.get(("a~b", None)) == BODY
    cache.invalidate(1)
    assert cache.get(("a~b", None)) is None and cache.get(("a~b", 0)) is None
    assert cache.get(("a~c", None)) == BODY


def test_response_of_job_changed_during_read_is_not_cached() -> None:
    cache = ResponseCache(min_bytes=10, max_bytes=1000)
    version = cache.version()
    cache.invalidate(1)
    cache.put(("a~b", None), 1, BODY, version)
    assert cache.get(("a~b", None)) is None
    cache.put(("a~c", None), 2, BODY, version)
    assert cache.get(("a~c", None)) == BODY, "a change of another job does not matter"
    version = cache.version()
    for job_id in range(10, 10_000):
        cache.invalidate(job_id)
    cache.put(("a~d", None), 3, BODY, version)
    assert cache.get(("a~d", None)) is None, "too many changes to know"


def test_small_responses_are_not_cached_and_least_recently_used_go_first() -> None:
    cache = ResponseCache(min_bytes=50, max_bytes=250)
    cache.put(("small", None), 1, b"x", cache.version())
    assert cache.get(("small", None)) is None
    for number, name in enumerate("abc"):
        cache.put((name, None), number, BODY, cache.version())
        assert cache.get(("a", None)) == BODY
    assert cache.get(("b", None)) is None and cache.get(("c", None)) == BODY


def test_detail_of_large_job_is_never_stale(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "true", instances=80, extras={"gangAllocation": False}))
    cluster.wait_over(name)
    before = cluster.get(cluster.path(name))
    assert len(before.body) > 64 << 10
    assert cluster.get(cluster.path(name)).body == before.body
    cluster.ask("PUT", cluster.path(name, "/tag"), {"value": "seen"})
    assert json.loads(cluster.get(cluster.path(name)).body)["tags"] == ["seen"]
    assert cluster.ask("DELETE", f"/api/v1/jobs/{name}").status == 202
    assert cluster.get(cluster.path(name)).status == 404
