from support.server_fixture import new_cluster_fixture, running_cluster  # noqa: F401
