"""Metrics in Prometheus text format, and the watchdog of the event loop."""

from __future__ import annotations

import asyncio
import logging
import re
import time

import pytest

from paicluster.metrics import exposition
from paicluster.metrics.http_metrics import HttpMetrics
from paicluster.metrics.loop_watchdog import LoopWatchdog
from support.server_fixture import job
from support.team_cluster import TeamCluster

LINE = re.compile(r'^[a-z_]+(\{([a-z_]+="([^"\\]|\\.)*",?)+\})? (-?[0-9.e+-]+|\+Inf|NaN)$')


def scrape(cluster: TeamCluster) -> dict[str, float]:
    reply = cluster.get("/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    for line in reply.text.splitlines():
        if not line.startswith("#"):
            assert LINE.match(line), line
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


def test_counters_and_only_they_end_in_total(team: TeamCluster) -> None:
    types = [line.split()[2:] for line in team.get("/metrics").text.splitlines() if line.startswith("# TYPE")]
    assert types
    for name, kind in types:
        assert (kind == "counter") == name.endswith("_total"), name


def test_metrics_show_jobs_free_resources_and_requests(team: TeamCluster) -> None:
    team.run(job("counted", "true"))
    team.accept(job("held", "sleep 60", cpu=4, gpu=1))
    team.accept(job("never", "true", cpu=4096))
    team.wait_state("held", "RUNNING")
    team.get("/api/v2/jobs/alice~nobody")
    team.get("/nowhere")
    seen = scrape(team)
    assert seen['paicluster_jobs{state="RUNNING"}'] == 1
    assert seen['paicluster_jobs{state="SUCCEEDED"}'] >= 1
    assert seen['paicluster_jobs_waiting{virtual_cluster="default"}'] == 1
    free = {
        k.split('resource="')[1][:-2]: v for k, v in seen.items() if k.startswith("paicluster_resources_f")
    }
    assert (free["cpu"], free["gpu"]) == (60, 3)
    capacity = [v for k, v in seen.items() if k.startswith("paicluster_resources{") and '"cpu"' in k]
    assert capacity == [64]
    detail = 'method="GET",route="/api/v2/jobs/{framework}"'
    assert seen[f'paicluster_http_requests_total{{{detail},status="404"}}'] >= 1
    assert seen['paicluster_http_requests_total{method="GET",route="unknown",status="404"}'] >= 1
    count = seen[f"paicluster_http_request_duration_seconds_count{{{detail}}}"]
    assert seen[f'paicluster_http_request_duration_seconds_bucket{{{detail},le="+Inf"}}'] == count > 0
    assert 0 <= seen["paicluster_event_loop_lag_seconds"] < 60
    assert 0 <= seen["paicluster_writer_queue_age_seconds"] < 60
    assert seen["paicluster_database_commits_total"] > 0
    team.stop("held")
    team.stop("never")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345678, "12345678"),
        (12345678.0, "12345678"),
        (1_500_000_000_001, "1500000000001"),
        (1_500_000_000_000.25, "1500000000000.25"),
        (0.1 + 0.2, "0.30000000000000004"),
        (True, "1"),
        (0.0, "0"),
    ],
)
def test_values_are_exact(value: float, text: str) -> None:
    lines = list(
        exposition.family("requests_total", "counter", "Requests.", [("", {"status": "200"}, value)])
    )
    assert lines[-1] == f'requests_total{{status="200"}} {text}'


def test_metrics_require_a_token(team: TeamCluster) -> None:
    assert team.get("/metrics", token=None).status == 401


def test_stalled_loop_is_logged_once_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    def block_loop(watchdog: LoopWatchdog) -> None:
        """Block until the stall was logged, and longer than the time after which it would be logged again."""
        ends = time.monotonic() + 60
        while not watchdog.stalls_total and time.monotonic() < ends:
            time.sleep(0.01)
        time.sleep(1.0)

    async def run() -> int:
        watchdog = LoopWatchdog(stall_after_s=0.2)
        await asyncio.sleep(0)
        block_loop(watchdog)
        stalls = watchdog.stalls_total
        lagged = watchdog.lag_s
        while watchdog.lag_s == lagged:
            await asyncio.sleep(0.01)
        assert watchdog.take_max_lag() > 1
        assert watchdog.take_max_lag() == watchdog.lag_s
        watchdog.close()
        return stalls

    with caplog.at_level(logging.ERROR, "paicluster.watchdog"):
        assert asyncio.run(run()) == 1
    assert "block_loop" in caplog.records[0].getMessage()


def test_counting_a_request_takes_under_20_microseconds() -> None:
    series = HttpMetrics().series("GET", "/x")
    # Thread time, whatever else this machine does.
    began = time.thread_time()
    for _ in range(20_000):
        series.count(200, 0.003)
    assert (time.thread_time() - began) / 20_000 < 20e-6
    assert series.statuses == {200: 20_000}
