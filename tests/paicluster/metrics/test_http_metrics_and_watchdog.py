"""Figures for Prometheus, and the stack of a loop that is stuck."""

from __future__ import annotations

import asyncio
import logging
import re
import time

import pytest

from paicluster.metrics.http_metrics import HttpMetrics
from paicluster.metrics.loop_watchdog import LoopWatchdog
from support.server_fixture import job
from support.team_cluster import TeamCluster

LINE = re.compile(r'^[a-z_]+(\{([a-z_]+="([^"\\]|\\.)*",?)+\})? (-?[0-9.e+-]+|\+Inf|NaN)$')


def figures(cluster: TeamCluster) -> dict[str, float]:
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


def test_the_cluster_shows_its_jobs_its_room_and_its_requests(team: TeamCluster) -> None:
    team.run(job("counted", "true"))
    team.accept(job("held", "sleep 60", cpu=4, gpu=1))
    team.accept(job("never", "true", cpu=4096))
    team.wait_state("held", "RUNNING")
    team.get("/api/v2/jobs/alice~nobody")
    team.get("/nowhere")
    seen = figures(team)
    assert seen['paicluster_jobs{state="RUNNING"}'] == 1
    assert seen['paicluster_jobs{state="SUCCEEDED"}'] >= 1
    assert seen['paicluster_jobs_waiting{virtual_cluster="default"}'] == 1
    free = {
        k.split('resource="')[1][:-2]: v for k, v in seen.items() if k.startswith("paicluster_resources_f")
    }
    assert (free["cpu"], free["gpu"]) == (60, 3)
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


def test_a_guest_does_not_get_the_figures(team: TeamCluster) -> None:
    assert team.get("/metrics", token=None).status == 401


def test_a_stuck_loop_is_told_with_its_stack_once(caplog: pytest.LogCaptureFixture) -> None:
    def stands_still(heartbeat: LoopWatchdog) -> None:
        """Until it was told, and well beyond the time after which it would be told again."""
        ends = time.monotonic() + 60
        while not heartbeat.stuck_total and time.monotonic() < ends:
            time.sleep(0.01)
        time.sleep(1.0)

    async def run() -> int:
        heartbeat = LoopWatchdog(stuck_after_s=0.2)
        await asyncio.sleep(0)
        stands_still(heartbeat)
        told = heartbeat.stuck_total
        lagged = heartbeat.lag_s
        while heartbeat.lag_s == lagged:
            await asyncio.sleep(0.01)
        assert heartbeat.take_worst() > 1
        assert heartbeat.take_worst() == heartbeat.lag_s
        heartbeat.close()
        return told

    with caplog.at_level(logging.ERROR, "paicluster.heartbeat"):
        assert asyncio.run(run()) == 1
    assert "stands_still" in caplog.records[0].getMessage()


def test_counting_a_request_costs_next_to_nothing() -> None:
    series = HttpMetrics().series("GET", "/x")
    # Of our own time, whatever else this machine does.
    began = time.thread_time()
    for _ in range(20_000):
        series.count(200, 0.003)
    assert (time.thread_time() - began) / 20_000 < 20e-6
    assert series.statuses == {200: 20_000}
