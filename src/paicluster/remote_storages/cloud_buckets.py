"""Buckets in a cloud: their description in OpenPAI's terms, and their credentials for users and tasks.

Credentials lie in a file that only the server's account can read. It is read for each use, so new credentials
apply without a restart; they are in no database and in no log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from paicluster.config.sections import BucketSettings
from paiprotocol.errors import ConfigError

S3 = "s3"
MAX_CREDENTIALS_BYTES = 64 << 10
"""A file with a few keys; a larger one is another file."""
# Keys of the file, and their names in StorageDetail. OpenPAI has those of Azure.
_S3_KEYS = {
    "access-key-id": "accessKeyId",
    "secret-access-key": "secretAccessKey",
    "session-token": "sessionToken",
}
_AZURE_KEYS = {"account-key": "accountKey", "sas-token": "accountSASToken"}


@dataclass(frozen=True, slots=True)
class CloudBucket:
    """A bucket in a cloud. ``kind`` is ``s3`` or ``azureblob``."""

    kind: str
    settings: BucketSettings

    @property
    def url(self) -> str:
        """Its address, for `pai` and for tasks."""
        settings = self.settings
        where = f"s3://{settings.name}" if self.kind == S3 else f"abfs://{settings.name}@{settings.account}"
        return f"{where}/{settings.prefix}".rstrip("/")

    def data(self) -> dict[str, Any]:
        """What a StorageDetail says about it, without credentials."""
        settings = self.settings
        if self.kind == S3:
            description = {"bucket": settings.name, "region": settings.region}
        else:
            description = {"containerName": settings.name, "accountName": settings.account}
        description |= {"endpointUrl": settings.endpoint_url, "rootPath": settings.prefix}
        return {name: value for name, value in description.items() if value}

    def secrets(self) -> dict[str, str]:
        """The credentials under their names in StorageDetail; empty if users have their own."""
        return read_credentials(self.settings.credentials, _S3_KEYS if self.kind == S3 else _AZURE_KEYS)

    def data_with_secrets(self) -> dict[str, Any]:
        return {**self.data(), **self.secrets()}

    def has_credentials(self) -> bool:
        """Whether it can be mounted: never with the credentials of the server's own account."""
        return bool(self.secrets())

    def task_environment(self) -> dict[str, str]:
        """The variables that the tools of the cloud read."""
        settings, secrets = self.settings, self.secrets()
        if not secrets:
            return {}
        if self.kind == S3:
            variables = {
                "AWS_ACCESS_KEY_ID": secrets.get("accessKeyId", ""),
                "AWS_SECRET_ACCESS_KEY": secrets.get("secretAccessKey", ""),
                "AWS_SESSION_TOKEN": secrets.get("sessionToken", ""),
                "AWS_DEFAULT_REGION": settings.region,
                "AWS_ENDPOINT_URL_S3": settings.endpoint_url,
            }
        else:
            key, token = secrets.get("accountKey", ""), secrets.get("accountSASToken", "")
            variables = {
                # Azure's command line and adlfs have different names for the same.
                "AZURE_STORAGE_ACCOUNT": settings.account,
                "AZURE_STORAGE_ACCOUNT_NAME": settings.account,
                "AZURE_STORAGE_KEY": key,
                "AZURE_STORAGE_ACCOUNT_KEY": key,
                "AZURE_STORAGE_SAS_TOKEN": token,
                "AZURE_STORAGE_SERVICE_ENDPOINT": settings.endpoint_url,
            }
        return {name: value for name, value in variables.items() if value}


def read_credentials(path: Path | None, names: Mapping[str, str]) -> dict[str, str]:
    """The content of a credentials file under the names of its keys in StorageDetail; empty without a file.

    Errors name its keys, never its values.
    """
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            if path.stat().st_mode & 0o077:
                raise ConfigError(
                    f"{path} has credentials, and other accounts may read it.", hint=f"Run: chmod 600 {path}"
                )
            content = yaml.safe_load(file.read(MAX_CREDENTIALS_BYTES))
    except OSError as e:
        raise ConfigError(f"The credentials in {path} cannot be read: {e.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{path} is not YAML.", hint=f"Its keys are {', '.join(names)}.") from None
    if not isinstance(content, dict) or not content or not set(content) <= set(names):
        raise ConfigError(
            f"{path} has other keys than credentials have.", hint=f"Its keys are {', '.join(names)}."
        )
    if not all(isinstance(value, str) and value for value in content.values()):
        raise ConfigError(f"{path} has a value that is not text.", hint="Put it in quotes.")
    return {names[key]: value for key, value in content.items()}
