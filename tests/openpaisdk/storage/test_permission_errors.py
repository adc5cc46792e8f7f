"""Permission and token errors of the real `pai` against a cluster with several users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_user import CliUser, CommandResult
from support.team_cluster import TeamCluster


@pytest.fixture
def bob(team: TeamCluster, tmp_path: Path) -> Iterator[CliUser]:
    person = CliUser(tmp_path / "bob")
    (person.home / ".openpai").mkdir()
    url = "http://{}:{}".format(*team.address)
    entries = [
        {"cluster_alias": who, "pai_uri": url, "user": who, "token": team.tokens[who]}
        for who in ("bob", "alice")
    ]
    (person.home / ".openpai/clusters.yaml").write_text(json.dumps(entries))
    yield person


def refused(done: CommandResult, *words: str) -> None:
    assert done.status in (1, 2), done
    said = [line for line in done.err.splitlines() if line.startswith("pai: ")]
    assert len(said) == 1 and "Traceback" not in done.err, done
    for word in words:
        assert word.lower() in done.err.lower(), done


@pytest.mark.parametrize("way", [[], ["--http"]], ids=["handed over", "over HTTP"])
def test_files_of_another_user_are_forbidden_and_unchanged(bob: CliUser, way: list[str]) -> None:
    bob.write(mine="mine", secret="secret")
    (bob.project / "large").write_bytes(b"x" * (9 << 20))
    (bob.project / "d").mkdir()
    (bob.project / "d/f").write_text("1")
    home = "pai://alice/0/user/alice"
    assert bob.pai("copy", "secret", f"{home}/secret").status == 0
    theirs = "pai://bob/0/user/alice"
    for source in ("mine", "large", "d"):
        refused(bob.pai("copy", *way, source, f"{theirs}/secret2"), "permission denied")
    refused(bob.pai("copy", *way, "mine", f"{theirs}/secret"), "permission denied")
    refused(bob.pai("copy", *way, f"{theirs}/secret", "stolen"), "permission denied")
    refused(bob.pai("listdir", theirs), "permission denied")
    refused(bob.pai("remove", "-y", f"{theirs}/secret"), "permission denied")
    refused(bob.pai("makedir", f"{theirs}/x"), "permission denied")
    refused(bob.pai("sync", *way, "d", theirs), "permission denied")
    assert not (bob.project / "stolen").exists()
    kept = bob.pai("listdir", home).out.split()
    assert "secret" in kept and "secret2" not in kept and "x/" not in kept


def test_invalid_token_is_reported(bob: CliUser) -> None:
    book = bob.home / ".openpai/clusters.yaml"
    entries = json.loads(book.read_text())
    entries[0]["token"] = "nonsense"
    book.write_text(json.dumps(entries))
    bob.write(mine="mine")
    refused(bob.pai("copy", "mine", "pai://bob/0/user/bob/x"), "token")
