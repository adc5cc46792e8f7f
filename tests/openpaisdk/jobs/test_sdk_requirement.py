"""What a task installs for ``container-sdk-branch``."""

import json
import subprocess

import pytest

from openpaisdk.jobs import sdk_requirement as module
from openpaisdk.jobs.sdk_requirement import repository_of, sdk_requirement
from paiprotocol.errors import UsageError


def test_branch_of_the_repository_that_the_sdk_was_installed_from(monkeypatch) -> None:
    monkeypatch.setattr(module, "_installed_from", lambda: "git+https://example.org/sdk")
    assert sdk_requirement("feature/x", shares_machine=False) == "git+https://example.org/sdk@feature/x"
    assert sdk_requirement("pai-0.14.y", shares_machine=False) == "git+https://example.org/sdk@pai-0.14.y"


@pytest.mark.parametrize("value", ["~=1.2", ">=1.0", "==1.2.3", "!=2", "<3"])
def test_versions_by_a_specifier(value: str) -> None:
    for shares_machine in (True, False):
        assert sdk_requirement(value, shares_machine=shares_machine) == f"openpaisdk{value}"


def test_branch_without_a_known_repository_is_rejected(monkeypatch) -> None:
    monkeypatch.setattr(module, "_installed_from", lambda: "")
    with pytest.raises(UsageError, match="container-sdk-branch=next names a branch") as caught:
        sdk_requirement("next", shares_machine=True)
    assert "git+https://" in caught.value.hint


def test_origin_of_an_installation(tmp_path) -> None:
    git = {"url": "https://example.org/sdk", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
    assert repository_of(json.dumps(git)) == "git+https://example.org/sdk"
    folder = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    assert repository_of(json.dumps(folder)) == ""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert repository_of(json.dumps(folder)) == f"git+{tmp_path.as_uri()}"
    for other in ("", "{}", '{"url": "https://example.org/x.whl", "archive_info": {}}'):
        assert repository_of(other) == ""


@pytest.mark.parametrize("value", ["next", "~/sdk.whl"])
def test_path_of_this_machine_is_not_sent_to_another_one(monkeypatch, value: str) -> None:
    monkeypatch.setattr(module, "_installed_from", lambda: "git+file:///home/me/sdk")
    monkeypatch.setenv("HOME", "/home/me")
    assert "/home/me/sdk" in sdk_requirement(value, shares_machine=True)
    with pytest.raises(UsageError, match="job does not run") as caught:
        sdk_requirement(value, shares_machine=False)
    assert "pai set container-sdk-branch=" in caught.value.hint
