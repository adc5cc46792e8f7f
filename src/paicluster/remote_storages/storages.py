"""Storages of the cluster: their configuration, and which of them a user may use."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paicluster.config.sections import StorageSettings
from paicluster.remote_storages.cloud_buckets import CloudBucket
from paicluster.remote_storages.network_shares import NetworkShare
from paicluster.store.rows import UserGrants
from paiprotocol.errors import ConfigError

# Name of the storage that the cluster itself serves.
OWN = "home"
# Reserved: ``pai://<cluster>/jobs/<job>/`` are the files of a job.
JOBS = "jobs"

# Types of OpenPAI's StorageDetail; it has none for S3.
_OPENPAI_TYPES = {
    "mount": "nfs",
    "s3": "s3",
    "azureblob": "azureBlob",
    "nfs": "nfs",
    "samba": "samba",
    "azurefile": "azureFile",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExternalHdfs:
    """An HDFS of other machines, at ``url``. It has no credentials: users have their names there."""

    url: str

    def data_with_secrets(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """A storage. ``type`` and ``data`` are those of OpenPAI's StorageDetail; ``url`` is its WebHDFS URL.

    Without ``groups`` every user may use it.
    """

    name: str
    type: str = "other"
    data: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None
    share: bool = True
    read_only: bool = False
    groups: tuple[str, ...] = ()
    default: bool = False
    # Where it is, if it is on other machines.
    remote: CloudBucket | NetworkShare | ExternalHdfs | None = None

    def is_usable_by(self, access: UserGrants) -> bool:
        return access.may_use_storage(self.name, self.groups)

    def is_default_of(self, access: UserGrants) -> bool:
        return self.default or self.name in access.default_storages

    def data_with_secrets(self) -> dict[str, Any]:
        """``data`` with the credentials in it, for users of the storage, as in OpenPAI."""
        return dict(self.data) if self.remote is None else self.remote.data_with_secrets()


def of_settings(settings: Sequence[StorageSettings], url: str) -> tuple[StorageConfig, ...]:
    """The storages in the settings; without any, the one that the cluster itself serves at ``url``."""
    own = f"{url}/webhdfs"
    if not settings:
        return (StorageConfig(OWN, url=own, default=True),)
    return tuple(
        StorageConfig(
            storage.name,
            _OPENPAI_TYPES.get(storage.kind, "other"),
            _data(storage),
            {"own": own, "hdfs": storage.url}.get(storage.kind),
            storage.share,
            storage.read_only,
            storage.groups,
            default=index == 0,
            remote=remote_of(storage) or _hdfs_of(storage),
        )
        for index, storage in enumerate(settings)
    )


def remote_of(storage: StorageSettings) -> CloudBucket | NetworkShare | None:
    """The bucket or share of a storage; None if it is neither."""
    if storage.bucket is not None:
        return CloudBucket(storage.kind, storage.bucket)
    return None if storage.network_share is None else NetworkShare(storage.kind, storage.network_share)


def _hdfs_of(storage: StorageSettings) -> ExternalHdfs | None:
    return ExternalHdfs(storage.url) if storage.kind == "hdfs" and storage.url else None


def _data(storage: StorageSettings) -> Mapping[str, Any]:
    if (remote := remote_of(storage)) is not None:
        return remote.data()
    return {"server": "", "path": str(storage.path)} if storage.kind == "mount" else {}


def check_names(settings: Sequence[StorageSettings], *, is_new: bool) -> None:
    """Refuse the reserved name on a new cluster; on one that was used before, it keeps its meaning."""
    if all(storage.name != JOBS for storage in settings):
        return
    message = f"A storage cannot be called {JOBS!r}: pai://CLUSTER/{JOBS}/JOB/ are the files of a job."
    if is_new:
        raise ConfigError(message, hint="Give it another name in cluster.yaml.")
    log.warning("%s It keeps its meaning, and files of jobs have no such address on this cluster.", message)


def usable(storages: Iterable[StorageConfig], access: UserGrants) -> list[StorageConfig]:
    """The storages that a user with these grants may use."""
    return [storage for storage in storages if storage.is_usable_by(access)]
