from support.storage_fixture import desk_fixture, shared_desk_fixture, wire_fixture  # noqa: F401
from support.team_cluster import storage_team  # noqa: F401
