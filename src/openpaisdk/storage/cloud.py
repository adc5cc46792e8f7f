"""Storages in a cloud: the backend of an address, and of a cluster's storage with its own credentials."""

from __future__ import annotations

from openpaisdk.storage.location import S3
from paiprotocol.errors import ConfigError

SAMBA = "samba"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.backends.samba import SambaBackend
    from openpaisdk.storage.location import Location


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


def open_storage(
    kind: str, url: str, path: str, *, endpoint_url: str, options: dict[str, str], read_only: bool
) -> Backend:
    """Backend of a storage of a cluster. Without credentials in ``options``, those of this machine are used.

    ``path`` begins with the bucket or container; it is a folder of a share of Samba, whose address is
    ``endpoint_url``.
    """
    if kind == SAMBA:
        return open_share(endpoint_url, url, path, options=options, read_only=read_only)
    bucket, _, root = path.strip("/").partition("/")
    if not bucket:
        raise ConfigError(f"The storage {url} names no bucket.")
    if kind == S3:
        from openpaisdk.storage.backends.s3 import S3Backend, S3Options

        settings = S3Options(
            access_key_id=options.get("accessKeyId", ""),
            secret_access_key=options.get("secretAccessKey", ""),
            session_token=options.get("sessionToken", ""),
            endpoint_url=endpoint_url,
            region=options.get("region", ""),
        )
        return S3Backend(bucket, settings, url=url, root=root, read_only=read_only)
    from openpaisdk.storage.backends.azure_account import AzureAccount, find_account
    from openpaisdk.storage.backends.azure_blob import AzureBlobBackend

    account = AzureAccount(
        options.get("accountName", "") or options.get("account", ""),
        key=options.get("key", "") or options.get("accountKey", ""),
        sas_token=options.get("accountSASToken", ""),
        endpoint_url=endpoint_url,
    )
    if not account.has_secret:
        account = find_account(account, url)
    return AzureBlobBackend(bucket, account, url=url, root=root, read_only=read_only)


def open_share(
    address: str,
    url: str,
    folder: str,
    *,
    options: Mapping[str, str],
    read_only: bool,
    allows_old_guests: bool = True,
) -> SambaBackend:
    """Backend of a share of Samba, with the credentials in ``options``; without any, as a guest."""
    from openpaisdk.storage.backends.samba import SambaBackend, ShareAddress

    domain, username = options.get("domain", ""), options.get("username", "")
    return SambaBackend(
        ShareAddress(address),
        f"{domain}\\{username}" if domain else username,
        options.get("password", ""),
        url=url,
        root=folder,
        read_only=read_only,
        allows_old_guests=allows_old_guests,
    )
