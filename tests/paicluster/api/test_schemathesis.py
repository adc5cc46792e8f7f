"""Schemathesis believes our description, and asks for everything in it, well and badly."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from support.server_fixture import job
from support.team_cluster import TeamCluster

NewTeam = Callable[..., TeamCluster]

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
NOT_ASKED = (
    # These stay open as long as the job lives.
    "/follow$",
    # These could end the session that asks.
    "/logout$",
    "/tokens?/{token}$",
    "/password$",
    # Here the original answers 500 to what it does not know, and so do we.
    "/storage/(config|server)/",
)


@pytest.mark.slow
def test_nothing_fails_and_nothing_undeclared_is_answered(new_team: NewTeam) -> None:
    cluster = new_team("limits: {requests-per-minute: null, lists-per-minute: null}\n")
    cluster.run(job("known", "echo hello"))
    command = [sys.executable, "-m", "schemathesis.cli", "run"]
    command += [f"http://{cluster.address[0]}:{cluster.address[1]}/openapi.json"]
    command += ["--checks", CHECKS, "--phases", "examples,coverage,fuzzing", "--max-examples", "8"]
    # One after the other: Python 3.11 cannot parse in two threads at once, which hypothesis does.
    command += ["--max-time", "75", "--workers", "1", "--seed", "7", "--continue-on-failure"]
    command += ["--request-timeout", "20", "--suppress-health-check", "all", "--generation-database", "none"]
    command += ["--header", f"Authorization: Bearer {cluster.tokens['admin']}", "--warnings", "off"]
    command += ["--exclude-path-regex", "|".join(NOT_ASKED)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert "Traceback" not in cluster.log.read_text()
    # It was somebody to the end, and was not only refused.
    asked = cluster.get("/metrics", token=cluster.tokens["admin"])
    assert asked.status == 200, _last_changes(cluster)
    done = re.findall(r'requests_total{method="(\w+)",route="([^"]+)",status="2\d\d"}', asked.text)
    assert len(set(done)) > 60, sorted(done)


def _last_changes(cluster: TeamCluster) -> str:
    """What it did last while it was somebody."""
    lines = (cluster.home / "audit.log").read_text().splitlines()
    return "\n".join([line for line in lines if '"user":"admin"' in line][-10:])
