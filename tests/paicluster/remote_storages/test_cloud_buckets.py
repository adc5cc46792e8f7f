"""Credentials files of storages in a cloud: what is accepted, and errors without the values."""

from __future__ import annotations

from pathlib import Path

import pytest

from paicluster.config.sections import BucketSettings
from paicluster.remote_storages.cloud_buckets import CloudBucket
from paiprotocol.errors import ConfigError

SECRET = "a-secret-value"


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (f"access-key-id: K\nsecret-access-key: {SECRET}\n", 0o644, "other accounts may read it"),
        (f"secret: {SECRET}\n", 0o600, "has other keys than credentials have"),
        (f"{SECRET}\n", 0o600, "has other keys than credentials have"),
        (f"secret-access-key: [{SECRET}]\n", 0o600, "has a value that is not text"),
        (f"secret-access-key: '{SECRET}\n", 0o600, "is not YAML"),
        ("", 0o600, "has other keys than credentials have"),
    ],
)
def test_wrong_credentials_file(content: str, mode: int, message: str, tmp_path: Path) -> None:
    file = tmp_path / "s3.yaml"
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(ConfigError) as error:
        CloudBucket("s3", BucketSettings("data", credentials=file)).secrets()
    assert message in error.value.message
    assert SECRET not in error.value.message + error.value.hint


def test_variables_of_azure_have_the_names_of_both_tools(tmp_path: Path) -> None:
    file = tmp_path / "azure.yaml"
    file.write_text(f"account-key: {SECRET}\n")
    file.chmod(0o600)
    bucket = CloudBucket("azureblob", BucketSettings("box", prefix="p", account="team", credentials=file))
    assert bucket.url == "abfs://box@team/p"
    assert bucket.task_environment() == {
        "AZURE_STORAGE_ACCOUNT": "team",
        "AZURE_STORAGE_ACCOUNT_NAME": "team",
        "AZURE_STORAGE_KEY": SECRET,
        "AZURE_STORAGE_ACCOUNT_KEY": SECRET,
    }
    assert bucket.data() == {"containerName": "box", "accountName": "team", "rootPath": "p"}


def test_bucket_without_credentials_gives_tasks_its_address_only() -> None:
    assert CloudBucket("s3", BucketSettings("data")).task_environment() == {}
