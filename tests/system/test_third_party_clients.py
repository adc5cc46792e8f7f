"""Unmodified third-party clients: Luigi, Microsoft's JavaScript SDK, paicli; and recorded calls of NNI."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.nni_calls import NniManager
from support.node import node, npm_package
from support.paths import TESTS
from support.server_fixture import eventually, job
from support.team_cluster import PASSWORD, TeamCluster
from support.third_party_clients import paicli

NewTeam = Callable[..., TeamCluster]
ANONYMOUS_READS = "authentication: {anonymous-v1-reads: true}\n"
pytestmark = pytest.mark.service


@pytest.fixture
def cluster(new_team: NewTeam) -> TeamCluster:
    return new_team(ANONYMOUS_READS)


def address(cluster: TeamCluster) -> str:
    return f"http://{cluster.address[0]}:{cluster.address[1]}"


# -- Luigi -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_luigi_runs_its_pai_task(cluster: TeamCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pai = importlib.import_module("luigi.contrib.pai")
    # It polls every five seconds; shortened.
    monkeypatch.setattr(pai.time, "sleep", lambda seconds, wait=pai.time.sleep: wait(0.05))
    for key, value in (("pai_url", address(cluster)), ("username", "alice"), ("password", PASSWORD)):
        importlib.import_module("luigi.configuration").get_config().set("OpenPai", key, value)

    class Train(pai.PaiTask):  # type: ignore[misc, name-defined]
        name = "luigi_sklearn"
        image = "openpai/pai.example.sklearn"

        @property
        def tasks(self) -> list[Any]:
            return [pai.TaskRole("main", "echo trained", memoryMB=128)]

    task = Train()
    assert task.complete() is False
    # Luigi's own bug: it waits for a state "SUCCEED", which OpenPAI never had.
    with pytest.raises(RuntimeError, match="Job luigi_sklearn finished in state SUCCEEDED"):
        task.run()
    assert b"trained" in cluster.log_of("luigi_sklearn")
    assert task.complete() is False


# -- Microsoft's JavaScript SDK --------------------------------------------------------------------


def drive(cluster: TeamCluster, user: str, name: str, role: str) -> dict[str, Any]:
    script = (TESTS / "support/drive_js_sdk.js").read_text()
    ran = subprocess.run(
        [node(), "-", address(cluster), user, PASSWORD, name, role],
        input=script,
        cwd=npm_package("@microsoft/openpai-js-sdk", "0.1.5"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    results: dict[str, Any] = json.loads(ran.stdout)
    return results


@pytest.mark.slow
def test_javascript_sdk_as_user(cluster: TeamCluster) -> None:
    results = drive(cluster, "alice", "from_javascript", "user")
    assert results["info"]["name"] == "PAI RESTful API"
    assert results["login"]["user"] == "alice"
    assert results["created"]["message"] == "Update job from_javascript for user alice successfully."
    assert results["again"]["code"] == "ConflictJobError"
    assert results["status"]["jobStatus"]["state"] == "SUCCEEDED"
    assert results["attempt"]["jobStatus"]["attemptId"] == 0
    assert results["config"]["name"] == "from_javascript"
    assert results["list"]["totalCount"] == 1
    assert results["list"]["data"][0]["name"] == "from_javascript"
    assert results["task"]["attempts"][0]["containerExitCode"] == 0
    assert {location["name"] for location in results["logs"]["locations"]} >= {"stdout", "stderr", "all"}
    log = next(location["uri"] for location in results["logs"]["locations"] if location["name"] == "stdout")
    assert "printed by a job" in cluster.get(log, token=None).text
    assert results["attempts"][0]["isLatest"] is True
    assert results["oneAttempt"]["attemptIndex"] == 0
    assert results["noJob"]["code"] == "NoJobError"
    assert "default" in results["clusters"]
    assert results["cluster"]["resourcesTotal"]["cpu"] == 64
    assert isinstance(results["storages"]["storages"], list)
    assert results["me"]["username"] == "alice"
    assert results["self"]["message"] == "Update user alice successfully"
    assert {user["username"] for user in results["users"]} >= {"admin", "alice", "bob"}
    assert results["application"]["application"] is True
    assert results["application"]["token"] in results["tokens"]["tokens"]
    assert results["revoked"]["message"] == "revoke successfully"
    assert results["notAdmin"]["code"] == "ForbiddenUserError"


@pytest.mark.slow
def test_javascript_sdk_as_administrator(cluster: TeamCluster) -> None:
    results = drive(cluster, "admin", "unused", "admin")
    assert results["user"]["message"] == "User is created successfully"
    assert results["carol"]["email"] == "carol@example.com"
    assert [member["username"] for member in results["members"]] == ["carol"]
    assert "lab" in {group["groupname"] for group in results["groups"]}
    assert results["nodes"]["items"]
    assert "items" in results["pods"]
    assert results["removed"]["message"] == "user is removed successfully"


# -- paicli ----------------------------------------------------------------------------------------


@pytest.fixture
def paicli_api(cluster: TeamCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(paicli()))
    monkeypatch.setenv("HOME", str(tmp_path))
    config = importlib.import_module("paicli.config").Config()
    config.host, config.port = cluster.address
    config.username, config.password = "alice", PASSWORD
    config.path_to_configdir = str(tmp_path)
    config.path_to_accesstoken = str(tmp_path / "token")
    yield importlib.import_module("paicli.api").API(config)
    for name in [name for name in sys.modules if name.partition(".")[0] == "paicli"]:
        del sys.modules[name]


@pytest.mark.slow
def test_paicli_submits_reads_and_stops_jobs(cluster: TeamCluster, paicli_api: Any) -> None:
    config = paicli_api.config
    config.access_token = json.loads(paicli_api.post_token("alice", PASSWORD))["token"]
    config.write_access_token()
    spec = {
        "jobName": "from_paicli",
        "image": "ubuntu:22.04",
        "taskRoles": [
            {
                "name": "main",
                "taskNumber": 1,
                "cpuNumber": 1,
                "memoryMB": 128,
                "gpuNumber": 0,
                "command": "sleep 60",
            }
        ],
    }
    paicli_api.post_user_username_jobs("alice", json.dumps(spec))

    def state() -> str:
        detail = json.loads(paicli_api.get_user_username_jobs_jobname("alice", "from_paicli"))
        return str(detail["jobStatus"]["state"])

    eventually(lambda: state() == "RUNNING", "a running job")
    listed = json.loads(paicli_api.get_jobs("alice"))
    assert [one["name"] for one in listed] == ["from_paicli"]
    assert listed[0]["username"] == "alice"
    paicli_api.put_user_username_jobs_jobname_executiontype("alice", "from_paicli", "STOP")
    eventually(lambda: state() == "STOPPED", "a stopped job")
    cluster.run(job("another", "true"))
    assert len(json.loads(paicli_api.get_jobs())) == 2


# -- NNI -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_calls_of_nni_run_trials_over_a_shared_folder(new_team: NewTeam, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    cluster = new_team(f"storages:\n  - {{name: nni, type: mount, path: {shared}}}\n")
    # Without containers the tasks have the folder at its own path.
    manager = NniManager(cluster, "nni", shared, shared)
    for environment, rate in (("one", "0.1"), ("two", "0.2")):
        assert manager.start(environment).status in (200, 201, 202)
        eventually(lambda name=environment: manager.reports(name) == ["started"], "a runner")
        # The runner may report before the cluster has written that it runs.
        eventually(lambda name=environment: manager.state(name) == "RUNNING", "the state of a runner")
        manager.order(environment, rate)
        eventually(lambda name=environment: manager.state(name) == "SUCCEEDED", "the end of an environment")
        assert manager.reports(environment) == ["started", f"metric {rate}"]

    # At the end of an experiment NNI stops the environments that still run.
    manager.start("three")
    eventually(lambda: manager.reports("three") == ["started"], "a runner")
    assert manager.stop("three").status == 202
    eventually(lambda: manager.state("three") == "USER_CANCELED", "a stopped environment")
    assert manager.start("four", command="exit 3").status in (200, 201, 202)
    eventually(lambda: manager.state("four") == "FAILED", "a failed environment")
    again = manager.cluster.ask(
        "PUT", "/rest-server/api/v2/jobs/alice~nothing/executionType", {"value": "STOP"}
    )
    assert again.status == 404
