"""Commands that reach into running jobs, for a user whose job it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_user import CliUser
from support.server_fixture import eventually, job
from support.team_cluster import TeamCluster, module_team  # noqa: F401


@pytest.fixture(scope="module", name="private")
def private_job(team: TeamCluster) -> Iterator[str]:
    """A running job of alice."""
    name = team.accept(job("private", "echo hidden > file; echo up; sleep 600"))
    eventually(lambda: b"up" in team.log_of(name), "the job")
    yield name
    team.stop(name)


def person(team: TeamCluster, folder: Path, name: str) -> CliUser:
    found = CliUser(folder / name)
    (found.home / ".openpai").mkdir()
    url = "http://{}:{}".format(*team.address)
    entry = {"cluster_alias": "team", "pai_uri": url, "user": name, "token": team.tokens[name]}
    (found.home / ".openpai/clusters.yaml").write_text(json.dumps([entry]))
    return found


def test_job_of_another_user_is_closed_and_nothing_is_told(
    team: TeamCluster, private: str, tmp_path: Path
) -> None:
    bob = person(team, tmp_path, "bob")
    owner = ("--user", "alice")
    no_key = f"pai: Only the user of job {private} gets its SSH key.\n"
    refused = "User bob is not allowed to {} job alice~" + private + "."
    run, forward = refused.format("run commands in"), refused.format("forward ports of")
    for words, sentence in (
        (("exec", *owner, private, "--", "cat", "file"), run),
        (("exec", *owner, "--role", "none", private, "--", "cat", "file"), run),
        (("exec", "-t", *owner, private, "--", "cat", "file"), run),
        (("forward", *owner, private, "0:8080"), forward),
        (("forward", *owner, "--index", "7", private, "0:8080"), forward),
        (("ssh-container", *owner, "-j", private), no_key),
        (("ssh-config", *owner, private), no_key),
    ):
        done = bob.pai(*words)
        assert (done.status, done.out) == (1, "") and sentence in done.err, done
        assert "hidden" not in done.err and "Traceback" not in done.err, done
        assert not list(bob.project.iterdir()), "neither a key nor a host key"


def test_administrator_may_run_commands_but_gets_no_key(
    team: TeamCluster, private: str, tmp_path: Path
) -> None:
    admin = person(team, tmp_path, "admin")
    assert admin.pai("exec", "--user", "alice", private, "--", "cat", "file").out == "hidden\n"
    done = admin.pai("ssh-config", "--user", "alice", private)
    assert (
        done.status == 1 and "pai exec --user alice -t opens a shell, for administrators too." in done.err
    ), done
