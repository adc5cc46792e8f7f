"""docs/running-a-cluster.md: its files are valid, and its settings do what it says."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from paicluster.config.cluster_file import load
from paiprotocol.jobs import read_job
from support.paths import REPOSITORY
from support.server_fixture import job
from support.team_cluster import TeamCluster, new_team_fixture  # noqa: F401

PAGE = (REPOSITORY / "docs/running-a-cluster.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", [text for text in blocks("yaml") if text.startswith("listen:")])
def test_cluster_files_of_the_page_are_valid(text: str, tmp_path: Path) -> None:
    for name in ("cluster.yaml", "cert.pem", "key.pem"):
        (tmp_path / name).write_text(text)
    fields = load(tmp_path / "cluster.yaml")
    assert fields["host"] == "0.0.0.0"


@pytest.fixture
def open_team(new_team: Callable[..., TeamCluster]) -> TeamCluster:
    """A cluster with the page's settings for old clients."""
    (text,) = [text for text in blocks("yaml") if text.startswith("authentication:")]
    return new_team(text)


def test_settings_for_old_clients_do_what_the_page_says(open_team: TeamCluster) -> None:
    open_team.run(job("old", "true", secrets={"key": "hidden"}))

    def ask(method: str, path: str, **more: Any) -> Any:
        return open_team.ask(method, path, token=None, **more)

    for rest in ("", "/config"):
        assert ask("GET", f"/api/v1/user/alice/jobs/old{rest}").status == 200
    assert "hidden" not in ask("GET", "/api/v1/user/alice/jobs/old/config").text
    assert ask("GET", "/api/v1/user/alice/jobs/old/ssh").json()["code"] == "NoJobSshInfoError"
    assert ask("GET", "/api/v2/jobs").status == 401
    storage = "/webhdfs/v1/results"
    assert ask("PUT", f"{storage}/1?op=MKDIRS&user.name=alice").json() == {"boolean": True}
    denied = ask("DELETE", f"{storage}?op=DELETE&recursive=true&user.name=bob")
    assert (denied.status, denied.json()["RemoteException"]["exception"]) == (403, "AccessControlException")
    assert ask("GET", "/webhdfs/v1/user/alice?op=LISTSTATUS&user.name=admin").status == 403


def test_page_names_every_setting_for_old_clients() -> None:
    block = PAGE.partition("## Old clients")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `([a-z0-9-]+)` \|", block, re.MULTILINE))
    assert named == {"anonymous-v1-reads", "trust-user-name", "open-root"}


def test_page_lists_exactly_the_sections_of_the_schema() -> None:
    from paicluster.config.schema import CLUSTER

    section = PAGE.partition("| section |")[2].partition("\n\n")[0]
    documented = {
        name for row in section.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])
    }
    assert documented == set(CLUSTER.fields)


@pytest.mark.parametrize("text", [text for text in blocks("yaml") if "extras:" in text])
def test_job_extras_of_the_page_are_parsed(text: str) -> None:
    additions = read_job(yaml.safe_dump(job("a", "true")) + text).additions
    assert (additions.array_limit, additions.time_limit_s) == (4, 3600)
    assert [(one.job, one.requires_success) for one in additions.dependencies] == [("prepare", True)]


def test_systemd_unit_of_the_page_starts_a_server() -> None:
    [text] = blocks("ini")
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "paicluster" and words[0] == "serve"
    assert unit["Service"]["KillMode"] == "process"
