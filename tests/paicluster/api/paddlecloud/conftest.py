"""Clients of PaddleCloud on a running cluster."""

from __future__ import annotations

import pytest

from support.paddlecloud_cluster import go_client_of
from support.paddlecloud_go_client import GoClient
from support.team_cluster import TeamCluster


@pytest.fixture
def go(cluster: TeamCluster) -> GoClient:
    """The Go client of alice."""
    return go_client_of(cluster, "alice")


@pytest.fixture
def bob(cluster: TeamCluster) -> GoClient:
    return go_client_of(cluster, "bob")
