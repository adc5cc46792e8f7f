"""docs/storage.md: its settings are valid, and its operations exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paicluster.config import cluster_file as cluster_file
from paiprotocol.errors import ConfigError
from support.paths import REPOSITORY
from support.webhdfs_client import StorageCluster, WebHdfsClient, alice_fixture, storage_cluster  # noqa: F401

_PAGE = (REPOSITORY / "docs/storage.md").read_text()


def _block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", _PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_settings_of_the_page_are_valid(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(_block("yaml"))
    storages = cluster_file.load(tmp_path / "cluster.yaml")["storages"]
    assert [(one.name, one.kind) for one in storages] == [("home", "own"), ("data", "mount"), ("old", "hdfs")]


def test_cluster_has_at_most_one_own_storage(tmp_path: Path) -> None:
    two = "storages:\n  - {name: a, type: own, path: a}\n  - {name: b, type: own, path: b}\n"
    (tmp_path / "cluster.yaml").write_text(two)
    with pytest.raises(ConfigError, match="only one own storage"):
        cluster_file.load(tmp_path / "cluster.yaml")


def test_every_listed_operation_exists(alice: WebHdfsClient) -> None:
    named = re.search(r"\nOperations: (.*?)\. There are no", _PAGE, re.DOTALL)
    assert named is not None
    for operation in re.findall(r"\b[A-Z_]{4,}\b", named[1]):
        replies = [alice.ask(method, operation, "/none") for method in ("GET", "PUT", "POST", "DELETE")]
        assert any(b"is not supported" not in reply.body for reply in replies), operation
        assert not any(b"No enum constant" in reply.body for reply in replies), operation
