"""docs/running-a-cluster.md: every block runs, from top to bottom."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from openpaisdk.protocol import read_job
from paicluster.cli import main
from paicluster.config.cluster_file import load
from support.paths import REPOSITORY
from support.server_fixture import Cluster, job
from support.team_cluster import TeamCluster, new_team_fixture  # noqa: F401

PAGE = (REPOSITORY / "docs/running-a-cluster.md").read_text()
PASSWORD = "a good password"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def lines() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines() if line.strip()]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a server that is root may have several users: other accounts can pass there."""
    made = Path(tempfile.mkdtemp(prefix="pai-page-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


class PageCluster(Cluster):
    """Runs what the page has after `paicluster serve`, but on a free port."""

    def start(self, *more: str) -> Cluster:
        return self.start_command(*more)

    def spawn(self, *more: str) -> subprocess.Popen[bytes]:
        command = [*self.program, "serve", *self.options, "--port", "0", *more]
        variables = {**os.environ, "PAICLUSTER_ADMIN_PASSWORD": PASSWORD}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=variables, cwd=self.home.parent
            )
        return self.process

    def log_in(self) -> None:
        login = {"username": "admin", "password": PASSWORD}
        reply = self.ask("POST", "/api/v2/authn/basic/login", login, token=None)
        self.user, self.token = "admin", reply.json()["token"]


@pytest.mark.slow
def test_commands_of_the_page_run_in_order(folder: Path) -> None:
    shell = {
        **os.environ,
        "PASSWORD": PASSWORD,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    running: PageCluster | None = None
    served = 0
    try:
        for line in lines():
            words = shlex.split(line, comments=True)
            if words[:2] != ["paicluster", "serve"]:
                done = subprocess.run(
                    ["bash", "-ec", line], cwd=folder, env=shell, capture_output=True, text=True
                )
                assert done.returncode == 0, (line, done)
                continue
            if running is not None:
                running.close()
            running = PageCluster(folder / "cluster", tuple(words[2:]))
            running.start()
            running.log_in()
            served += 1
            if served == 1:
                assert running.run(job("first", "true"))["state"] == "SUCCEEDED"
            if "--virtual-cluster" in words:
                shown = running.get("/api/v2/virtual-clusters").json()["lab"]["resourcesTotal"]
                assert (shown["gpu"], shown["cpu"], shown["memory"]) == (2, 16, 64000)
        assert running is not None and served == 2
        names = {user["username"] for user in running.get("/api/v2/users").json()}
        assert names == {"admin", "bob"}
        assert (folder / "restored" / "cluster.db").is_file()
        assert (folder / "restored" / "cluster.yaml").is_file()
    finally:
        if running is not None:
            running.close()


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


def test_every_option_of_the_page_exists(capsys: pytest.CaptureFixture[str]) -> None:
    # `serve` sets its handlers for signals before it reads its options.
    command = [sys.executable, "-m", "paicluster", "serve", "--help"]
    help_texts = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for words in (("backup",), ("check-config",), ("check-store",), ("restore-store",), *_verbs()):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
    help_texts += capsys.readouterr().out
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE)) <= set(re.findall(r"--[a-z-]+", help_texts))


def _verbs() -> set[tuple[str, str]]:
    """The commands in families that the page names, in its blocks or in a sentence."""
    found = re.findall(r"(?:paicluster )?\b(user|group|vc|token) ([a-z-]+) [\w-]+", PAGE)
    return {(family, verb) for family, verb in found if f"paicluster {family} {verb}" in PAGE}
