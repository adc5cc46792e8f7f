"""GET …/log-times and the times of followed logs: when the parts of a log were written."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from support.server_fixture import job
from support.team_cluster import TeamCluster

HOUR_MS = 3600 * 1000


def times(cluster: TeamCluster, name: str, **query: Any) -> dict[str, Any]:
    reply = cluster.get(cluster.path(name, f"/log-times?{urlencode(query)}"))
    assert reply.status == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


@pytest.fixture(scope="module")
def spoken(cluster: TeamCluster) -> str:
    cluster.run(job("spoken", "echo first", "echo error >&2", "sleep 4", "echo second"))
    return "spoken"


def test_each_part_of_a_log_has_its_time(cluster: TeamCluster, spoken: str) -> None:
    now_ms = time.time() * 1000
    found = times(cluster, spoken, stream="stdout")
    assert found["precisionMs"] == 1000
    (first, first_ms), (second, second_ms) = found["times"]
    assert (first, second) == (0, len("first\n"))
    assert 1000 <= second_ms - first_ms < HOUR_MS
    assert now_ms - HOUR_MS < first_ms < second_ms <= now_ms
    assert times(cluster, spoken, stream="stdout", start=2, end=4)["times"] == [[2, first_ms]]
    assert times(cluster, spoken, stream="stdout", start=7)["times"] == [[7, second_ms]]


def test_followed_log_has_times_on_request(cluster: TeamCluster, spoken: str) -> None:
    def log_frames(query: str) -> list[dict[str, Any]]:
        data = cluster.get(cluster.path(spoken, f"/follow?follow=false&{query}")).body
        frames = []
        while data:
            line, _, data = data.partition(b"\n")
            frames.append(json.loads(line))
            data = data[frames[-1].get("size", 0) :]
        return [frame for frame in frames if frame["kind"] == "log"]

    expected = times(cluster, spoken)
    found = [pair for frame in log_frames("times=true") for pair in frame["times"]]
    assert found == expected["times"]
    assert all("times" not in frame for frame in log_frames(""))


def test_job_without_output_or_index_has_no_times(cluster: TeamCluster) -> None:
    cluster.run(job("silent", "true"))
    assert times(cluster, "silent") == {"precisionMs": None, "times": []}
    assert cluster.get(cluster.path("silent", "/log-times?attempt=7")).status == 404
    assert cluster.get(cluster.path("silent", "/log-times?start=x")).status == 400


@pytest.mark.parametrize("content", [b"", b"logtime1", b"\xff" * 4096, b"logtime1" + b"\xff" * 4096])
def test_damaged_index_is_no_error(cluster: TeamCluster, content: bytes, name: str) -> None:
    cluster.run(job(name, "echo out"))
    (index,) = Path(cluster.home).glob(f"tasks/*/{_uid(cluster, name)}/log-times")
    index.write_bytes(content)
    assert times(cluster, name)["times"] == []
    assert cluster.get(cluster.path(name, "/follow?follow=false&times=true")).status == 200


def _uid(cluster: TeamCluster, name: str) -> str:
    (role,) = cluster.get(cluster.path(name)).json()["taskRoles"].values()
    return str(role["taskStatuses"][0]["containerId"])
