"""Jobs that render to more text than the memory holds: rejected, or failed if an older server took them."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.server_fixture import Cluster, job

HALF_MB = "x" * 500_000
MAX_GROWTH_KB = 64 << 10


def exploding(name: str) -> dict[str, Any]:
    """A job of 544 KB whose commands have 1.5 GB of text."""
    spec = job(name, "<% $parameters.x %>" * 3000)
    return {**spec, "parameters": {"x": HALF_MB}}


def memory_kb(cluster: Cluster, key: str = "VmHWM") -> int:
    """Memory of the server; by default the most it ever had."""
    assert cluster.process is not None
    status = Path(f"/proc/{cluster.process.pid}/status").read_text()
    return int(re.findall(rf"{key}:\s+(\d+) kB", status)[0])


def test_exploding_job_is_rejected_with_a_sentence_and_little_memory(cluster: Cluster) -> None:
    before = memory_kb(cluster, "VmRSS")
    refused = cluster.submit(exploding("exploding"))
    assert refused.status == 400
    error = refused.json()
    assert error["code"] == "InvalidProtocolError"
    assert error["message"].startswith("The commands of a job may have at most 4 MiB of text with parameters")
    assert "Put large values into a file" in error["hint"]
    assert cluster.get(cluster.path("exploding")).status == 404
    assert memory_kb(cluster) - before < MAX_GROWTH_KB


@pytest.mark.slow
def test_exploding_job_of_an_older_server_fails_and_others_run(new_cluster: Callable[..., Cluster]) -> None:
    old = new_cluster(options=("--embedded", "--cpus", "2", "--memory-mb", "4096"))
    old.start()
    old.accept(job("blocker", "sleep 600", cpu=2))
    old.wait_state("blocker", "RUNNING")
    old.accept(job("stored", "true", cpu=1))
    assert old.terminate() == 0
    with closing(sqlite3.connect(old.home / "cluster.db")) as database:
        text = json.dumps(exploding("stored"))
        database.execute(
            "UPDATE job_specs SET job = ?1, config = ?1 "
            "WHERE job_id = (SELECT id FROM jobs WHERE name = 'stored')",
            (text,),
        )
        database.commit()
    old.start()
    old.stop("blocker")
    status = old.wait_over("stored")
    assert (status["state"], status["appExitCode"]) == ("FAILED", -200)
    assert "The commands of a job may have at most 4 MiB of text" in json.dumps(old.detail("stored"))
    reasons = [event["message"] for event in old.events("stored") if event["reason"] == "FailedLaunch"]
    assert len(reasons) == 1 and reasons[0].startswith("The commands of a job may have at most 4 MiB")
    # The cluster lives, and so does it after the next start.
    assert old.run(job("after", "true"))["state"] == "SUCCEEDED"
    old.kill()
    old.start()
    assert old.status("stored")["state"] == "FAILED"
    assert old.run(job("last", "true"))["state"] == "SUCCEEDED"
    assert memory_kb(old) < 300 << 10
