"""Random requests to every route, other ones in each run: `make test-large`. FUZZING_S: how long."""

from __future__ import annotations

import os
import random

import pytest

from support.schemathesis_run import SETTINGS, call_every_route
from support.server_fixture import job
from support.team_cluster import NewTeam, new_team_fixture  # noqa: F401

pytestmark = pytest.mark.slow

_FUZZING_S = int(os.environ.get("FUZZING_S") or 120)


def test_no_random_request_causes_a_server_error_or_an_undescribed_response(new_team: NewTeam) -> None:
    cluster = new_team(SETTINGS)
    cluster.run(job("known", "echo hello"))
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    options = ("--phases", "fuzzing", "--max-examples", "20", "--max-time", str(_FUZZING_S))
    call_every_route(cluster, *options, "--seed", str(seed))
