"""`pai` with a token that is revoked while it follows a job, and with the token of a job."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_user import BIN, CliUser
from support.server_fixture import eventually, job
from support.team_cluster import TeamCluster, module_team  # noqa: F401


@pytest.fixture(name="bob")
def bob_fixture(team: TeamCluster, tmp_path: Path) -> Iterator[CliUser]:
    """Bob with a session of his own on the team's cluster."""
    person = CliUser(tmp_path / "bob")
    (person.home / ".openpai").mkdir()
    url = "http://{}:{}".format(*team.address)
    entry = {"cluster_alias": "team", "pai_uri": url, "user": "bob", "token": team.log_in("bob")}
    (person.home / ".openpai/clusters.yaml").write_text(json.dumps([entry]))
    yield person
    person.stop_cluster()


def token_of(user: CliUser) -> str:
    return str(json.loads((user.home / ".openpai/clusters.yaml").read_text())[0]["token"])


@pytest.mark.slow
def test_following_ends_with_the_session_and_says_how_to_go_on(team: TeamCluster, bob: CliUser) -> None:
    team.accept(job("followed", "echo started", "sleep 600"))
    command = bob.begin("logs", "-a", "team", "-f", "--user", "alice", "followed")
    try:
        assert command.stdout is not None
        assert command.stdout.readline() == "started\n"
        assert team.ask("DELETE", "/api/v2/authn/basic/logout", token=token_of(bob)).status == 200
        out, err = command.communicate(timeout=90)
    finally:
        command.kill()
        team.stop("followed")
    assert command.returncode == 1 and out == "", (command.returncode, out, err)
    assert "does not accept your token" in err and "pai update-token -a team" in err, err
    assert "Traceback" not in err


@pytest.mark.slow
def test_task_submits_resubmits_and_lists_jobs_of_its_user_only(team: TeamCluster) -> None:
    assert team.submit(job("secret_of_bob", "true"), token=team.tokens["bob"]).status == 202
    lines = [
        f'export PATH="{BIN}:$PATH" HOME="$PWD/empty"; mkdir -p "$HOME" project; cd project; echo 7 > data',
        "pai sub --mem 64m --wait -j child -- cat data",
        "pai resubmit child -j again --follow",
        "pai list-jobs --user __all__ -o json > all.json; cat all.json",
        "! pai job-status --user bob secret_of_bob",
        "pai cluster-resources > /dev/null",
    ]
    state = team.run(job("parent", *lines, memory_mb=512))["state"]
    log = team.log_of("parent").decode()
    assert state == "SUCCEEDED", log
    assert "7\n" in log and "again" in log
    assert "secret_of_bob is" not in log and '"secret_of_bob"' not in log
    assert "A job of user alice is not allowed to see job bob~secret_of_bob." in log, log
    eventually(lambda: team.status("child")["state"] == "SUCCEEDED", "the child")
