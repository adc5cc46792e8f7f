"""Large answers are kept while their job does not change, and never longer."""

from __future__ import annotations

import json

from paicluster.api.v2.detail_cache import ResponseCache
from support.server_fixture import job
from support.team_cluster import TeamCluster

BODY = b"x" * 100


def test_an_answer_is_kept_until_its_job_changes() -> None:
    kept = ResponseCache(smallest=10, largest=1000)
    kept.keep(("a~b", None), 1, BODY, kept.moment())
    kept.keep(("a~b", 0), 1, BODY, kept.moment())
    kept.keep(("a~c", None), 2, BODY, kept.moment())
    assert kept.get(("a~b", None)) == BODY
    kept.forget(1)
    assert kept.get(("a~b", None)) is None and kept.get(("a~b", 0)) is None
    assert kept.get(("a~c", None)) == BODY


def test_what_changed_while_it_was_read_is_not_kept() -> None:
    kept = ResponseCache(smallest=10, largest=1000)
    since = kept.moment()
    kept.forget(1)
    kept.keep(("a~b", None), 1, BODY, since)
    assert kept.get(("a~b", None)) is None
    kept.keep(("a~c", None), 2, BODY, since)
    assert kept.get(("a~c", None)) == BODY, "another job's change is none of its"
    since = kept.moment()
    for job_id in range(10, 10_000):
        kept.forget(job_id)
    kept.keep(("a~d", None), 3, BODY, since)
    assert kept.get(("a~d", None)) is None, "too much happened to know"


def test_small_answers_are_not_kept_and_the_least_used_go_first() -> None:
    kept = ResponseCache(smallest=50, largest=250)
    kept.keep(("small", None), 1, b"x", kept.moment())
    assert kept.get(("small", None)) is None
    for number, name in enumerate("abc"):
        kept.keep((name, None), number, BODY, kept.moment())
        assert kept.get(("a", None)) == BODY
    assert kept.get(("b", None)) is None and kept.get(("c", None)) == BODY


def test_a_large_job_is_told_as_it_is_now(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "true", instances=80, cpu=0, memory_mb=1))
    cluster.wait_over(name)
    before = cluster.get(cluster.path(name))
    assert len(before.body) > 64 << 10
    assert cluster.get(cluster.path(name)).body == before.body
    cluster.ask("PUT", cluster.path(name, "/tag"), {"value": "seen"})
    assert json.loads(cluster.get(cluster.path(name)).body)["tags"] == ["seen"]
    assert cluster.ask("DELETE", f"/api/v1/jobs/{name}").status == 202
    assert cluster.get(cluster.path(name)).status == 404
