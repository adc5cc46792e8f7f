"""Shares of file servers: their description in OpenPAI's terms, and their credentials for mounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paicluster.config.sections import ShareSettings
from paicluster.remote_storages.cloud_buckets import read_credentials

NFS, SAMBA, AZURE_FILE = "nfs", "samba", "azurefile"
KINDS = (NFS, SAMBA, AZURE_FILE)
# Keys of the file, and their names in OpenPAI's StorageDetail.
_KEYS = {
    NFS: {},
    SAMBA: {"username": "username", "password": "password", "domain": "domain"},
    AZURE_FILE: {"account-key": "accountKey"},
}
_AZURE_HOST = "file.core.windows.net"


@dataclass(frozen=True, slots=True)
class NetworkShare:
    """A share of a file server. ``kind`` is ``nfs``, ``samba`` or ``azurefile``."""

    kind: str
    settings: ShareSettings

    @property
    def url(self) -> str:
        """Its address, for tasks."""
        settings = self.settings
        if self.kind == NFS:
            return f"nfs://{settings.server}{settings.path}"
        if self.kind == SAMBA:
            return f"smb:{settings.path}"
        return f"smb://{settings.account}.{_AZURE_HOST}/{settings.path}"

    def data(self) -> dict[str, Any]:
        """What a StorageDetail says about it, without credentials."""
        settings = self.settings
        if self.kind == NFS:
            return {"server": settings.server, "path": settings.path}
        if self.kind == SAMBA:
            return {"address": settings.path}
        return {"shareName": settings.path, "accountName": settings.account}

    def secrets(self) -> dict[str, str]:
        return read_credentials(self.settings.credentials, _KEYS[self.kind])

    def data_with_secrets(self) -> dict[str, Any]:
        return {**self.data(), **self.secrets()}

    def has_credentials(self) -> bool:
        """Whether it can be mounted: NFS has no credentials, and Samba admits guests."""
        return self.kind != AZURE_FILE or bool(self.secrets())

    def task_environment(self) -> dict[str, str]:
        """Empty: no tool reads the credentials of a share from variables."""
        return {}
