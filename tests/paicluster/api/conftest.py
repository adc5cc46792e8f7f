"""Running clusters with three users (`admin`, `alice`, `bob`)."""

from __future__ import annotations

import itertools

import pytest

from support.team_cluster import api_cluster, module_team, new_team_fixture  # noqa: F401

_numbers = itertools.count()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """An unused job name."""
    return f"{request.node.originalname[5:45]}-{next(_numbers)}"
