"""Schemathesis calls every described route with valid and invalid requests."""

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
EXCLUDED_PATHS = (
    # These stay open until the job ends.
    "/follow$",
    # These could revoke the session in use.
    "/logout$",
    "/authn/session$",
    "/tokens?/{token}$",
    "/password$",
    # These respond 500 to unknown names, as in OpenPAI.
    "/storage/(config|server)/",
)


@pytest.mark.slow
def test_no_server_error_and_no_undescribed_response(new_team: NewTeam) -> None:
    cluster = new_team("limits: {requests-per-minute: null, lists-per-minute: null}\n")
    cluster.run(job("known", "echo hello"))
    command = [sys.executable, "-m", "schemathesis.cli", "run"]
    command += [f"http://{cluster.address[0]}:{cluster.address[1]}/openapi.json"]
    command += ["--checks", CHECKS, "--phases", "examples,coverage,fuzzing", "--max-examples", "8"]
    # One worker: Python 3.11 cannot parse in two threads at once, which hypothesis does.
    command += ["--max-time", "75", "--workers", "1", "--seed", "7", "--continue-on-failure"]
    command += ["--request-timeout", "20", "--suppress-health-check", "all", "--generation-database", "none"]
    command += ["--header", f"Authorization: Bearer {cluster.tokens['admin']}", "--warnings", "off"]
    command += ["--exclude-path-regex", "|".join(EXCLUDED_PATHS)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert "Traceback" not in cluster.log.read_text()
    # The token was valid to the end, and many requests succeeded.
    metrics = cluster.get("/metrics", token=cluster.tokens["admin"])
    assert metrics.status == 200, _last_changes(cluster)
    succeeded = re.findall(r'requests_total{method="(\w+)",route="([^"]+)",status="2\d\d"}', metrics.text)
    assert len(set(succeeded)) > 60, sorted(succeeded)


def _last_changes(cluster: TeamCluster) -> str:
    """The last audited requests of the administrator."""
    lines = (cluster.home / "audit.log").read_text().splitlines()
    return "\n".join([line for line in lines if '"user":"admin"' in line][-10:])
