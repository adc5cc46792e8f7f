"""Mistakes of administrators, and what will not work later, are said at once and in words."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paicluster.cli import main
from support.server_fixture import eventually
from support.unix_users import PASSWORD, CrewCluster, add_people, open_folder

Said = Callable[..., tuple[int, str]]


@pytest.fixture
def said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """The status of a command and its complaints, on a home of this test."""
    add_people(tmp_path / "home")
    (tmp_path / "home" / "cluster.yaml").write_text(
        "engine: {type: process, cpus: 2, memory-mb: 2000, gpus: 0}\n"
    )

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("long enough\n"))
        status = main([*words, *(["--home", str(tmp_path / "home")] if len(words) > 2 else [])])
        return status, capsys.readouterr().err

    return run


def test_a_command_that_is_nearly_right_is_suggested(said: Said) -> None:
    status, told = said("intt")
    assert status == 2 and "no command `paicluster intt`. Did you mean init?" in told
    status, told = said("user", "lst")
    assert status == 2 and "no command `paicluster user lst`. Did you mean list?" in told
    status, told = said("check-config")
    assert status == 2 and "Say which file to check" in told


def test_names_and_numbers_that_cannot_be_are_explained_in_words(said: Said) -> None:
    status, told = said("user", "add", "Bad Name")
    assert status == 2 and "'Bad Name' cannot be the name of a user" in told and "pattern" not in told
    status, told = said("vc", "add", "lab", "--capacity", "250")
    assert status == 2 and "in percent, from 0 to 100, not 250" in told
    status, told = said("user", "grant", "admin", "--vc", "nope")
    assert status == 1 and "There is no virtual cluster nope" in told and "There is default" in told


def test_a_share_in_which_nothing_can_run_is_made_with_a_warning(said: Said) -> None:
    status, told = said("vc", "add", "vision", "--capacity", "25")
    assert status == 0 and "no job can run in vision" in told and "one is 50 %" in told
    status, told = said("vc", "set", "vision", "--capacity", "50")
    assert (status, told) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs each user as his own account")
def test_a_user_without_an_account_is_made_with_a_warning(said: Said) -> None:
    name = f"pai-nobody-{os.getpid()}"
    status, told = said("user", "add", name)
    assert status == 0 and f"The jobs of {name} will wait." in told and f"useradd {name}" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs each user as his own account")
def test_a_server_that_starts_tells_of_users_without_accounts_and_of_a_new_home() -> None:
    name = f"pai-nobody-{os.getpid()}"
    with open_folder() as folder:
        new = CrewCluster(folder / "new", ("--cpus", "1"), {"PAICLUSTER_ADMIN_PASSWORD": PASSWORD})
        try:
            new.start()
            told = eventually(lambda: new.log.read_text(), "its first words")
            assert f"This is a new cluster, in {folder / 'new'}." in told
        finally:
            new.close()
        add_people(folder / "home", name)
        old = CrewCluster(folder / "home", ("--cpus", "1"))
        try:
            old.start()
            told = old.log.read_text()
            assert f"useradd {name}" in told and "new cluster" not in told
        finally:
            old.close()
