"""Schemathesis against a running cluster: every described route, with valid and invalid requests."""

from __future__ import annotations

import re
import subprocess
import sys

from support.team_cluster import TeamCluster

SETTINGS = "limits: {requests-per-minute: null, lists-per-minute: null}\n"
"""Of a cluster that is called without a pause."""

_CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
_EXCLUDED_PATHS = (
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
_TIMEOUT_S = 900.0


def call_every_route(cluster: TeamCluster, *options: str) -> set[tuple[str, str]]:
    """Run Schemathesis with these options: no response is undescribed or an error of the server.

    Returns method and path of the routes of which a request succeeded.
    """
    command = [sys.executable, "-m", "schemathesis.cli", "run"]
    command += [f"http://{cluster.address[0]}:{cluster.address[1]}/openapi.json", "--checks", _CHECKS]
    # One worker: Python 3.11 cannot parse in two threads at once, which hypothesis does.
    command += ["--workers", "1", "--continue-on-failure", "--request-timeout", "20", "--warnings", "off"]
    command += ["--suppress-health-check", "all", "--generation-database", "none"]
    command += ["--header", f"Authorization: Bearer {cluster.tokens['admin']}"]
    command += ["--exclude-path-regex", "|".join(_EXCLUDED_PATHS), *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert "Traceback" not in cluster.log.read_text()
    # The token was valid to the end.
    metrics = cluster.get("/metrics", token=cluster.tokens["admin"])
    assert metrics.status == 200, _last_changes(cluster)
    return set(re.findall(r'requests_total{method="(\w+)",route="([^"]+)",status="2\d\d"}', metrics.text))


def _last_changes(cluster: TeamCluster) -> str:
    """The last audited requests of the administrator."""
    lines = (cluster.home / "audit.log").read_text().splitlines()
    return "\n".join([line for line in lines if '"user":"admin"' in line][-10:])
