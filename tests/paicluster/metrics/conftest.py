from support.team_cluster import module_team  # noqa: F401
