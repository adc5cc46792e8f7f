"""Clusters for the tests of whole servers, each in a home of its own."""

from support.half_open_network import half_open_network_fixture  # noqa: F401
from support.server_fixture import new_cluster_fixture, running_cluster  # noqa: F401
from support.team_cluster import new_team_fixture  # noqa: F401
