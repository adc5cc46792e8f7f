"""`GET /api/v2/job-schemas/{version}`: the schemas from which the cluster checks jobs, for editors."""

from __future__ import annotations

import pytest

from paiprotocol.jobs import job_schema
from support.team_cluster import TeamCluster


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_schema_is_the_one_that_pai_prints(cluster: TeamCluster, version: str) -> None:
    reply = cluster.ask("GET", f"/api/v2/job-schemas/{version}")
    assert reply.status == 200
    assert reply.json() == job_schema(version)


def test_unknown_version_is_not_found_with_the_known_ones(cluster: TeamCluster) -> None:
    reply = cluster.ask("GET", "/api/v2/job-schemas/v3")
    assert reply.status == 404
    assert "v1 or v2" in reply.json()["message"]
