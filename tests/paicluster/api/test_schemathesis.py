"""Schemathesis calls every described route with valid and invalid requests."""

from __future__ import annotations

import pytest

from support.schemathesis_run import SETTINGS, call_every_route
from support.server_fixture import job
from support.team_cluster import NewTeam


@pytest.mark.slow
def test_no_server_error_and_no_undescribed_response(new_team: NewTeam) -> None:
    """Every limit of every value, as far as the time allows. `make test-large` sends random requests."""
    cluster = new_team(SETTINGS)
    cluster.run(job("known", "echo hello"))
    succeeded = call_every_route(cluster, "--phases", "examples,coverage", "--max-time", "75")
    assert len(succeeded) > 60, sorted(succeeded)
