"""A copy to a folder that the user may not write to: the message names the user's own folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli_user import CliUser, CommandResult
from support.team_cluster import TeamCluster

OWN_FOLDER = "Your own folder is pai://team/home/user/bob."


@pytest.fixture
def bob(team: TeamCluster, tmp_path: Path) -> CliUser:
    person = CliUser(tmp_path / "bob")
    (person.home / ".openpai").mkdir()
    url = "http://{}:{}".format(*team.address)
    entry = {"cluster_alias": "team", "pai_uri": url, "user": "bob", "token": team.tokens["bob"]}
    (person.home / ".openpai/clusters.yaml").write_text(json.dumps([entry]))
    person.write(mine="mine", empty="")
    (person.project / "large").write_bytes(b"x" * (9 << 20))
    (person.project / "d/sub").mkdir(parents=True)
    (person.project / "d/a").write_text("1")
    (person.project / "d/sub/b").write_text("2")
    return person


def denied(done: CommandResult) -> None:
    assert done.status == 1, done
    lines = done.err.splitlines()
    assert len(lines) == 2 and lines[0].startswith("pai: "), done
    assert "permission denied" in lines[0].lower() and lines[1].strip() == OWN_FOLDER, done


@pytest.mark.parametrize("way", [[], ["--http"]], ids=["handed over", "over HTTP"])
@pytest.mark.parametrize("source", ["mine", "empty", "large", "d"])
@pytest.mark.parametrize("target", ["x", "data/x", "data/x/", "user/alice/x"])
def test_denied_copy_names_the_own_folder(
    bob: CliUser, team: TeamCluster, way: list[str], source: str, target: str
) -> None:
    team.ask("PUT", "/webhdfs/v1/user/alice?op=MKDIRS", token=team.tokens["alice"])
    denied(bob.pai("copy", *way, source, f"pai://team/0/{target}"))


def test_other_denied_writes_name_it_too(bob: CliUser) -> None:
    denied(bob.pai("sync", "d", "pai://team/0/data"))
    denied(bob.pai("makedir", "pai://team/0/data"))
    denied(bob.pai("copy", "-", "pai://team/0/data/x", stdin="x"))


def test_denied_read_does_not(bob: CliUser, team: TeamCluster) -> None:
    team.ask("PUT", "/webhdfs/v1/user/alice?op=MKDIRS", token=team.tokens["alice"])
    done = bob.pai("copy", "pai://team/0/user/alice/x", "stolen")
    assert done.status == 1 and "permission denied" in done.err and "Your own folder" not in done.err, done


def test_successful_copy_says_what_it_copied(bob: CliUser) -> None:
    done = bob.pai("copy", "d", "pai://team/0/user/bob/said")
    assert (done.status, done.err) == (0, "2 files, 2 B, all new\n"), done
