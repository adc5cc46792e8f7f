from support.cloud_servers import azure_server_fixture, s3_server_fixture  # noqa: F401
from support.cluster_storage import folder_fixture  # noqa: F401
