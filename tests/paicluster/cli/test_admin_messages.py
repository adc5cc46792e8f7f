"""Error messages and warnings of the administrator's commands."""

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

RunCommand = Callable[..., tuple[int, str]]


@pytest.fixture
def run_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """Runs a command on a new home; returns its status and its stderr."""
    add_people(tmp_path / "home")
    (tmp_path / "home" / "cluster.yaml").write_text(
        "engine: {type: process, cpus: 2, memory-mb: 2000, gpus: 0}\n"
    )

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("long enough\n"))
        status = main([*arguments, *(["--home", str(tmp_path / "home")] if len(arguments) > 2 else [])])
        return status, capsys.readouterr().err

    return run


def test_misspelt_command_gets_a_suggestion(run_command: RunCommand) -> None:
    status, output = run_command("intt")
    assert status == 2 and "no command `paicluster intt`. Did you mean init?" in output
    status, output = run_command("user", "lst")
    assert status == 2 and "no command `paicluster user lst`. Did you mean list?" in output
    status, output = run_command("check-config")
    assert status == 2 and "The file to check" in output


def test_invalid_names_and_numbers_are_explained(run_command: RunCommand) -> None:
    status, output = run_command("user", "add", "Bad Name")
    assert status == 2 and "'Bad Name' is not a valid user name" in output and "pattern" not in output
    status, output = run_command("vc", "add", "lab", "--capacity", "250")
    assert status == 2 and "in percent, from 0 to 100, not 250" in output
    status, output = run_command("user", "grant", "admin", "--vc", "nope")
    assert (
        status == 1 and "There is no virtual cluster nope" in output and "Virtual clusters: default" in output
    )


@pytest.mark.parametrize("words", [["--password", "typed-in-clear"], ["--password=typed-in-clear"]])
@pytest.mark.parametrize("verb", ["add", "passwd"])
def test_password_on_the_command_line_is_refused_and_not_repeated(
    run_command: RunCommand, verb: str, words: list[str]
) -> None:
    status, output = run_command("user", verb, "carol", *words)
    assert status == 2 and "takes no password on the command line" in output, output
    assert "it is read from standard input" in output and "typed-in-clear" not in output


def test_vc_smaller_than_one_core_is_created_with_a_warning(run_command: RunCommand) -> None:
    status, output = run_command("vc", "add", "vision", "--capacity", "25")
    assert (
        status == 0
        and "no job can run in vision" in output
        and "One of the cluster's 2 cores is 50 %" in output
    )
    status, output = run_command("vc", "set", "vision", "--capacity", "50")
    assert (status, output) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs each user under an account of its own")
def test_user_without_unix_account_is_created_with_a_warning(run_command: RunCommand) -> None:
    name = f"pai-nobody-{os.getpid()}"
    status, output = run_command("user", "add", name)
    assert status == 0 and f"The jobs of {name} will wait." in output and f"useradd {name}" in output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs each user under an account of its own")
def test_server_reports_users_without_accounts_and_a_new_home() -> None:
    name = f"pai-nobody-{os.getpid()}"
    with open_folder() as folder:
        new = CrewCluster(folder / "new", ("--cpus", "1"), {"PAICLUSTER_ADMIN_PASSWORD": PASSWORD})
        try:
            new.start()
            output = eventually(lambda: new.log.read_text(), "the first line of its log")
            assert f"This is a new cluster, in {folder / 'new'}." in output
        finally:
            new.close()
        add_people(folder / "home", name)
        old = CrewCluster(folder / "home", ("--cpus", "1"))
        try:
            old.start()
            output = old.log.read_text()
            assert f"useradd {name}" in output and "new cluster" not in output
        finally:
            old.close()
