import pytest

from support.python_session import here_fixture, server_fixture, whose_fixture  # noqa: F401
from support.team_cluster import module_team  # noqa: F401


@pytest.fixture(name="team_uri")
def team_uri_fixture(team) -> str:
    return "http://{}:{}".format(*team.address)


@pytest.fixture(name="two_clusters")
def two_clusters_fixture(team, team_uri, tmp_path, monkeypatch):
    """A user for whom ``team`` and ``other`` are registered, and none is selected; both are one server."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("PAI_REST_SERVER_URI", "PAI_USER_TOKEN", "PAI_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project)
    from openpaisdk import ClusterList

    clusters = ClusterList()
    for alias in ("team", "other"):
        clusters.add({"cluster_alias": alias, "pai_uri": team_uri, "user": "alice", "token": team.token})
    clusters.update({"cluster_alias": "team", "workspace": "/alice/team"})
    clusters.update({"cluster_alias": "other", "workspace": "/alice/other"})
    clusters.save()
    return project
