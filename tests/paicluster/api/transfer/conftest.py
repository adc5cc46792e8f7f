from support.team_cluster import storage_team  # noqa: F401
