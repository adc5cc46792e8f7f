from support.server_fixture import module_cluster  # noqa: F401
