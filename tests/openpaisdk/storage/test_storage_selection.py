"""Which storage is used when none is named."""

from __future__ import annotations

import pytest

from openpaisdk.errors import UsageError
from support.storage_fixture import StorageWorkspace


def test_default_storage_of_the_settings_is_used_by_python_and_by_commands(
    workspace: StorageWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace.person.home))
    missing = "has no storage called 'other'"
    workspace.ok("set", "-g", "storage-alias=other")
    try:
        assert missing in workspace.pai("listdir", "pai://team/0/user").err
        with pytest.raises(UsageError, match=missing):
            workspace.storage()
    finally:
        workspace.ok("unset", "-g", "storage-alias")
    assert workspace.storage().list(workspace.path) == []
