from support.cluster_storage import folder_fixture  # noqa: F401
