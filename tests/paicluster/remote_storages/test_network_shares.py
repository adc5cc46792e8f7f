"""Shares of file servers in `cluster.yaml`: their description in OpenPAI's terms, and who can mount them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paicluster.config import cluster_file
from paicluster.remote_storages.storages import StorageConfig, of_settings
from paiprotocol.errors import ConfigError


def storages(folder: Path, *lines: str) -> dict[str, StorageConfig]:
    file = folder / "cluster.yaml"
    file.write_text("storages:\n" + "".join(f"  - {line}\n" for line in lines))
    settings = cluster_file.load(file)["storages"]
    return {storage.name: storage for storage in of_settings(settings, "http://here")}


def test_shares_are_described_as_openpai_describes_them(tmp_path: Path) -> None:
    for name, text in {"samba": "username: ann\npassword: secret\n", "azure": "account-key: key\n"}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        (tmp_path / f"{name}.yaml").chmod(0o600)
    found = storages(
        tmp_path,
        "{name: lab, type: samba, address: //server/data/a, credentials: samba.yaml}",
        "{name: sets, type: nfs, server: server, path: /export/sets}",
        "{name: files, type: azurefile, share-name: data, account: team, credentials: azure.yaml}",
        "{name: closed, type: azurefile, share-name: data, account: team}",
    )
    expected: dict[str, tuple[str, dict[str, Any], str, bool]] = {
        "lab": (
            "samba",
            {"address": "//server/data/a", "username": "ann", "password": "secret"},
            "smb://server/data/a",
            True,
        ),
        "sets": ("nfs", {"server": "server", "path": "/export/sets"}, "nfs://server/export/sets", True),
        "files": (
            "azureFile",
            {"shareName": "data", "accountName": "team", "accountKey": "key"},
            "smb://team.file.core.windows.net/data",
            True,
        ),
        "closed": (
            "azureFile",
            {"shareName": "data", "accountName": "team"},
            "smb://team.file.core.windows.net/data",
            False,
        ),
    }
    for name, (kind, data, url, can_be_mounted) in expected.items():
        storage = found[name]
        assert storage.remote is not None
        assert (storage.type, storage.data_with_secrets(), storage.remote.url) == (kind, data, url)
        assert storage.remote.has_credentials() is can_be_mounted


@pytest.mark.parametrize(
    "line",
    [
        "{name: lab, type: samba, address: server}",
        "{name: sets, type: nfs, server: server, path: export}",
        "{name: sets, type: nfs, server: server}",
    ],
)
def test_wrong_address_of_a_share_is_an_error_of_the_file(line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        storages(tmp_path, line)
