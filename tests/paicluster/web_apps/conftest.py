from support.team_cluster import module_team, new_team_fixture  # noqa: F401
