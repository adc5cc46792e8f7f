"""What a task installs for ``container-sdk-branch``."""

import json
import subprocess

import pytest

from openpaisdk.errors import UsageError
from openpaisdk.jobs import sdk_requirement as module
from openpaisdk.jobs.sdk_requirement import repository_of, sdk_requirement


def test_branch_of_the_repository_that_the_sdk_was_installed_from(monkeypatch) -> None:
    monkeypatch.setattr(module, "_installed_from", lambda: "git+https://example.org/sdk")
    assert sdk_requirement("feature/x") == "git+https://example.org/sdk@feature/x"
    assert sdk_requirement("pai-0.14.y") == "git+https://example.org/sdk@pai-0.14.y"


def test_branch_without_a_known_repository_is_rejected(monkeypatch) -> None:
    monkeypatch.setattr(module, "_installed_from", lambda: "")
    with pytest.raises(UsageError, match="container-sdk-branch=next names a branch") as caught:
        sdk_requirement("next")
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
