"""Storages outside the nodes (clouds, file servers): how tasks reach them, by mounts and by variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paicluster.engines.interface import LaunchFailed, StorageMount
from paiprotocol.errors import ConfigError
from paiprotocol.jobs import JobSpec
from paiprotocol.jobs.extras import requested_storages

URL_PREFIX = "PAI_STORAGE_"
MOUNT_PREFIX = "PAI_MOUNT_"
_PUBLIC = ("AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3")
_PUBLIC_SUFFIXES = ("_ACCOUNT", "_ACCOUNT_NAME", "_ENDPOINT")


@dataclass(frozen=True, slots=True)
class CloudStorage:
    """A storage in a cloud, or a share of a file server.

    ``environment`` reads the variables of its credentials, ``data`` its description with them, and
    ``has_credentials`` whether they suffice to mount it; ConfigError.
    """

    name: str
    url: str
    environment: Callable[[], Mapping[str, str]]
    # All users see all of it; else each user sees the folder of the same name.
    shared: bool = True
    kind: str = ""
    data: Callable[[], Mapping[str, Any]] = dict
    has_credentials: Callable[[], bool] = lambda: False
    read_only: bool = False
    # Whether it is mounted for the jobs that request it, and for those that request the default storages.
    mounted: bool = False
    default: bool = False

    @property
    def url_variable(self) -> str:
        return URL_PREFIX + self._variable_part

    @property
    def mount_variable(self) -> str:
        return MOUNT_PREFIX + self._variable_part

    @property
    def _variable_part(self) -> str:
        return re.sub(r"[^A-Z0-9]", "_", self.name.upper())

    @property
    def is_in_cloud(self) -> bool:
        return self.kind in ("s3", "azureblob")

    def target(self, path: str) -> str:
        return "/" + (path or f"mnt/{self.name}").strip("/")

    def mount(self, user: str, path: str) -> StorageMount:
        return StorageMount(
            self.name,
            self.kind,
            self.target(path),
            self.mount_variable,
            self.data(),
            "" if self.shared else user,
            self.read_only,
        )


def storage_mounts(job: JobSpec, user: str, storages: Sequence[CloudStorage]) -> tuple[StorageMount, ...]:
    """Mounts of the storages that a job requests."""
    mounts = {}
    for storage, path in _requested(job, storages):
        try:
            if storage.mounted and storage.has_credentials():
                mount = storage.mount(user, path)
                mounts[mount.target] = mount
        except ConfigError:
            # Without it the job would fail later, or write its results where they are lost. It is retried:
            # an administrator may be replacing the file.
            raise LaunchFailed(_unreadable(storage)) from None
    return tuple(mounts.values())


def mount_problems(job: JobSpec, storages: Sequence[CloudStorage]) -> Iterator[str]:
    """Why storages that the job requests are not mounted, and what tasks can do instead."""
    for storage, path in _requested(job, storages):
        if not storage.mounted and not path:
            continue  # the administrator wants it so, and the job does not rely on a path
        reason = ""
        if not storage.mounted:
            reason = "it is not mounted on this cluster"
        elif not _has_credentials(storage):
            reason = "the cluster has no credentials for it"
        if reason:
            yield (
                f"The storage {storage.name} is not at {storage.target(path)}: {reason}. "
                f"Use its address in {storage.url_variable}{', or pai copy' if storage.is_in_cloud else ''}."
            )


def storage_variables(job: JobSpec, user: str, storages: Sequence[CloudStorage]) -> dict[str, str]:
    """Addresses and credentials of the storages that a job names; admission has checked that its user may
    use them. Of several storages in one cloud, the first one has the variables of that cloud."""
    variables: dict[str, str] = {}
    for storage, _ in _requested(job, storages):
        variables[storage.url_variable] = storage.url if storage.shared else f"{storage.url}/{user}"
        try:
            environment = storage.environment()
        except ConfigError:
            continue  # ``credential_problems`` reports it
        if not set(environment) & set(variables):
            variables.update(environment)
    return variables


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Values of the storage variables that are masked in logs."""
    return tuple(
        value
        for name, value in variables.items()
        if name not in _PUBLIC
        and not name.startswith((URL_PREFIX, MOUNT_PREFIX))
        and not name.endswith(_PUBLIC_SUFFIXES)
    )


def credential_problems(job: JobSpec, storages: Sequence[CloudStorage]) -> Iterator[str]:
    """Why tasks do not get the credentials of a storage that the job names."""
    seen: set[str] = set()
    for storage, _ in _requested(job, storages):
        try:
            environment = storage.environment()
        except ConfigError:
            yield _unreadable(storage)
            continue
        if set(environment) & seen:
            yield (
                f"The variables of another storage are set instead of those of {storage.name}: "
                "use pai copy with its pai:// address."
            )
        seen |= set(environment)


def _has_credentials(storage: CloudStorage) -> bool:
    """True also if they cannot be read: then the job does not start, and another event says why."""
    try:
        return storage.has_credentials()
    except ConfigError:
        return True


def _unreadable(storage: CloudStorage) -> str:
    return f"The credentials of the storage {storage.name} cannot be read; an administrator has to fix them."


def _requested(job: JobSpec, storages: Sequence[CloudStorage]) -> Iterator[tuple[CloudStorage, str]]:
    """The storages that a job requests, in the order of the cluster's file, and their mount paths."""
    named = requested_storages(job.extras)
    if named is None:
        return
    paths = dict(named)
    for storage in storages:
        if storage.name in paths or (not named and storage.default):
            yield storage, paths.get(storage.name, "")
