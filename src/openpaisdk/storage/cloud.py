"""Storages in a cloud: the backend of an address, and of a cluster's storage with its own credentials."""

from __future__ import annotations

from openpaisdk.storage.location import S3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.location import Location

S3_STORAGE, AZURE_BLOB_STORAGE = "s3", "azureblob"
"""Types of a cluster's storages. OpenPAI knows ``azureblob``; ``s3`` is ours."""


def open_bucket(location: Location) -> Backend:
    """Backend of an address, with the credentials of this machine."""
    if location.kind == S3:
        from openpaisdk.storage.backends.s3 import S3Backend, S3Options

        return S3Backend(location.host, S3Options())
    from openpaisdk.storage.backends.azure_account import find_account, split_host
    from openpaisdk.storage.backends.azure_blob import AzureBlobBackend

    container, addressed = split_host(location.host)
    url = f"az://{location.host}"
    return AzureBlobBackend(container, find_account(addressed, url), url=url)
