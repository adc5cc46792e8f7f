"""A user with a running cluster for all tests of the binding, which run as this user."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
DROPPED = ("PAI_DEBUG", "PAI_REST_SERVER_URI", "PAI_USER_TOKEN")


@pytest.fixture(scope="session", name="whose")
def whose_fixture(tmp_path_factory):
    home = tmp_path_factory.mktemp("binding")
    env = {**{k: v for k, v in os.environ.items() if k not in DROPPED}, "HOME": str(home)}
    subprocess.run([BIN / "pai", "start-cluster"], env=env, check=True, capture_output=True, cwd=home)
    yield home
    subprocess.run([BIN / "pai", "stop-cluster", "--now"], env=env, check=True, capture_output=True, cwd=home)


@pytest.fixture(name="here")
def here_fixture(whose, tmp_path, monkeypatch):
    """An empty current folder, with the user's HOME."""
    monkeypatch.setenv("HOME", str(whose))
    for name in DROPPED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(name="server")
def server_fixture(whose):
    """Address of the user's cluster, and the token of its owner."""
    found = next((whose / ".openpai/local").glob("*/server.json"))
    return json.loads(found.read_text())
