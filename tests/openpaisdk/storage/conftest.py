from support.storage_fixture import faulty_proxy_fixture, shared_workspace_fixture, workspace_fixture  # noqa: F401
from support.team_cluster import storage_team  # noqa: F401
