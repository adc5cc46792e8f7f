"""Storage credentials: the variables with which the tasks of a job reach the storages in a cloud."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from openpaisdk.errors import ConfigError
from openpaisdk.protocol import JobSpec
from openpaisdk.protocol.extras import requested_storages

URL_PREFIX = "PAI_STORAGE_"
_PUBLIC = ("AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3")
_PUBLIC_SUFFIXES = ("_ACCOUNT", "_ACCOUNT_NAME", "_ENDPOINT")


@dataclass(frozen=True, slots=True)
class CloudStorage:
    """A storage in a cloud. ``environment`` reads the variables of its credentials; ConfigError."""

    name: str
    url: str
    environment: Callable[[], Mapping[str, str]]
    # All users see all of it; else each user sees the folder of the same name.
    shared: bool = True

    @property
    def url_variable(self) -> str:
        return URL_PREFIX + re.sub(r"[^A-Z0-9]", "_", self.name.upper())


def storage_variables(job: JobSpec, user: str, storages: Sequence[CloudStorage]) -> dict[str, str]:
    """Addresses and credentials of the storages that a job names; admission has checked that its user may
    use them. Of several storages in one cloud, the first one has the variables of that cloud."""
    variables: dict[str, str] = {}
    for storage in _requested(job, storages):
        variables[storage.url_variable] = storage.url if storage.shared else f"{storage.url}/{user}"
        try:
            found = storage.environment()
        except ConfigError:
            continue  # ``credential_problems`` reports it
        if not set(found) & set(variables):
            variables.update(found)
    return variables


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The values among them that are masked in logs."""
    return tuple(
        value
        for name, value in variables.items()
        if name not in _PUBLIC and not name.startswith(URL_PREFIX) and not name.endswith(_PUBLIC_SUFFIXES)
    )


def credential_problems(job: JobSpec, storages: Sequence[CloudStorage]) -> Iterator[str]:
    """Why tasks do not get the credentials of a storage that the job names."""
    seen: set[str] = set()
    for storage in _requested(job, storages):
        try:
            found = storage.environment()
        except ConfigError:
            yield (
                f"The credentials of the storage {storage.name} cannot be read; "
                "an administrator has to fix them."
            )
            continue
        if set(found) & seen:
            yield (
                f"The variables of another storage are set instead of those of {storage.name}: "
                "use pai copy with its pai:// address."
            )
        seen |= set(found)


def _requested(job: JobSpec, storages: Sequence[CloudStorage]) -> Iterator[CloudStorage]:
    named = {name for name, _ in requested_storages(job.extras) or ()}
    return (storage for storage in storages if storage.name in named)
