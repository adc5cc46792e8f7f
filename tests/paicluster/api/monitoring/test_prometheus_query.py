"""Prometheus queries at `/prometheus`, where OpenPAI clients send them."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

import pytest

from support.server_fixture import Reply, job
from support.team_cluster import TeamCluster

QUERY = "/prometheus/api/v1/query"
RANGE = "/prometheus/api/v1/query_range"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def ask(cluster: TeamCluster, text: str, where: str = QUERY, **more: Any) -> Reply:
    return cluster.get(f"{where}?{urlencode({'query': text, **more})}")


def result(reply: Reply) -> list[dict[str, Any]]:
    body = reply.json()
    assert (reply.status, body["status"]) == (200, "success"), reply.text
    series: list[dict[str, Any]] = body["data"]["result"]
    return series


def test_selector_returns_value_and_labels(cluster: TeamCluster, name: str) -> None:
    cluster.run(job(name, "true"))
    states = {one["metric"]["state"]: one for one in result(ask(cluster, "paicluster_jobs"))}
    assert states["SUCCEEDED"]["metric"]["__name__"] == "paicluster_jobs"
    moment, value = states["SUCCEEDED"]["value"]
    assert abs(moment - time.time()) < 300
    assert float(value) >= 1
    [one] = result(ask(cluster, 'paicluster_jobs{state="SUCCEEDED"}', time="1700000000"))
    assert one["value"][0] == 1700000000
    for text, expected in (
        ('paicluster_jobs{state=~"FAILED|STOPPED"}', {"FAILED", "STOPPED"}),
        ('paicluster_jobs{state=~"STOP.*"}', {"STOPPED", "STOPPING"}),
        (
            "{__name__='paicluster_jobs', state!~'STOP.+|FAILED', state!=\"RUNNING\"}",
            {"SUCCEEDED", "WAITING"},
        ),
    ):
        assert {one["metric"]["state"] for one in result(ask(cluster, text))} == expected
    posted = cluster.ask("POST", QUERY, b"query=paicluster_jobs%7Bstate%3D%22RUNNING%22%7D", FORM)
    assert len(result(posted)) == 1


def test_range_query_has_the_current_value_only(cluster: TeamCluster) -> None:
    now = time.time()
    [one] = result(ask(cluster, 'paicluster_jobs{state="RUNNING"}', RANGE, start=now - 600, end=now, step=60))
    [[moment, value]] = one["values"]
    assert moment <= now
    assert float(value) >= 0
    assert result(ask(cluster, "paicluster_jobs", RANGE, start=0, end="1970-01-01T00:10:00Z", step=60)) == []


def test_unknown_metric_has_an_empty_result(cluster: TeamCluster) -> None:
    for text in (
        "up",
        "avg(avg_over_time(task_gpu_percent[10m]) < 10) by (job_name)",
        'node_uname_info{a="b"}',
    ):
        assert result(ask(cluster, text)) == []


@pytest.mark.parametrize(
    ("text", "status", "kind"),
    [
        ("", 400, "bad_data"),
        ("paicluster_jobs{state}", 400, "bad_data"),
        ("sum(paicluster_jobs)", 422, "execution"),
        ('paicluster_jobs{state=~"(a+)+$"}', 422, "execution"),
    ],
)
def test_unsupported_query_is_rejected(cluster: TeamCluster, text: str, status: int, kind: str) -> None:
    refused = ask(cluster, text)
    assert (refused.status, refused.json()["status"], refused.json()["errorType"]) == (status, "error", kind)


def test_invalid_times_and_missing_token_are_rejected(cluster: TeamCluster) -> None:
    assert ask(cluster, "paicluster_jobs", RANGE).status == 400
    assert ask(cluster, "paicluster_jobs", RANGE, start="soon", end="later").json()["errorType"] == "bad_data"
    for moment in ("nan", "inf", "1e400", "9" * 400, "9999-99-99"):
        assert ask(cluster, "paicluster_jobs", time=moment).json()["errorType"] == "bad_data"
    assert cluster.get(f"{QUERY}?query=up", token=None).status == 401
