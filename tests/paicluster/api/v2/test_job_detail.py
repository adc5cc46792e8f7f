"""Detail, attempts, config, events, stopping, and responses for missing jobs."""

from __future__ import annotations

import json

import pytest
import yaml

from paicluster.api.v2.job_detail import attempt_exit_spec
from paicluster.api.wire.responses import encode
from paicluster.store.rows import AttemptRow
from support.server_fixture import eventually, job, role
from support.team_cluster import TeamCluster

DETAIL = {
    "username", "state", "subState", "executionType", "retries", "retryDetails", "retryDelayTime",
    "submissionTime", "createdTime", "launchedTime", "completedTime", "attemptId", "attemptState", "appId",
    "appProgress", "appTrackingUrl", "appCreatedTime", "appLaunchedTime", "appCompletedTime", "appExitCode",
    "appExitSpec", "appExitDiagnostics", "appExitMessages", "appExitTriggerMessage",
    "appExitTriggerTaskRoleName", "appExitTriggerTaskIndex", "appExitType", "virtualCluster",
}  # fmt: skip
TASK = {
    "taskIndex", "taskUid", "taskState", "containerId", "containerIp", "containerNodeName", "containerPorts",
    "containerGpus", "containerLog", "containerExitCode", "containerExitSpec", "containerExitDiagnostics",
    "retries", "accountableRetries", "createdTime", "launchedTime", "completedTime", "attemptId",
    "attemptState", "currentAttemptCreatedTime", "currentAttemptLaunchedTime", "currentAttemptCompletedTime",
    "originUserExitCode",
}  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "/rest-server"])
def test_finished_job_has_openpai_format(cluster: TeamCluster, name: str, prefix: str) -> None:
    name += "-gateway" if prefix else ""
    cluster.run(job(name, "true", instances=2, ports={"web": 2}))
    found = cluster.get(prefix + cluster.path(name)).json()
    assert set(found) == {"debugId", "name", "tags", "jobPriority", "jobStatus", "taskRoles"}
    status = found["jobStatus"]
    assert set(status) == DETAIL
    assert (status["state"], status["attemptState"], status["appExitType"]) == ("SUCCEEDED",) * 2 + (
        "Succeeded",
    )
    assert (status["appExitCode"], status["appProgress"], status["attemptId"]) == (0, 1, 0)
    assert (
        status["submissionTime"] <= status["createdTime"] <= status["launchedTime"] <= status["completedTime"]
    )
    role = found["taskRoles"]["main"]
    assert role["taskRoleStatus"] == {"name": "main"}
    tasks = role["taskStatuses"]
    assert [task["taskIndex"] for task in tasks] == [0, 1]
    for task in tasks:
        assert set(task) == TASK
        assert task["taskState"] == "SUCCEEDED"
        ports = task["containerPorts"]
        assert set(ports) == {"ssh", "http", "web"}
        assert all(isinstance(value, str) for value in ports.values())
        assert len(ports["web"].split(",")) == 2
        assert cluster.get(task["containerLog"]).status == 200


def test_every_attempt_can_be_read(cluster: TeamCluster, name: str) -> None:
    status = cluster.run(job(name, "exit 4", jobRetryCount=1))
    assert (status["state"], status["retries"], status["attemptId"]) == ("FAILED", 1, 1)
    first = cluster.detail(name, 0)["jobStatus"]
    assert (first["attemptId"], first["attemptState"], first["appExitCode"]) == (0, "FAILED", 255)
    assert cluster.detail(name, 0)["cause"] == "Exit code 4"
    assert first["retries"] == 1, "the job's own counters are those of the latest attempt"
    assert cluster.detail(name, 1)["jobStatus"]["attemptId"] == 1
    uids = [cluster.detail(name, n)["taskRoles"]["main"]["taskStatuses"][0]["containerId"] for n in (0, 1)]
    assert uids[0] != uids[1]
    for rest in ("/attempts/2", "/attempts/99999999999999999999", "/attempts/x", "/attempts/-1"):
        assert cluster.get(cluster.path(name, rest)).status == 404, rest
    for attempt in (0, 1):
        path = f"/attempts/{attempt}/taskRoles/main/taskIndex/0/attempts"
        reply = cluster.get(cluster.path(name, path)).json()
        assert (reply["jobAttemptId"], reply["taskRoleName"], reply["taskIndex"]) == (attempt, "main", 0)
        assert [one["containerId"] for one in reply["attempts"]] == [uids[attempt]]
        assert reply["attempts"][0]["containerExitCode"] == 255
        assert reply["attempts"][0]["cause"] == "Exit code 4"
        (task,) = cluster.detail(name, attempt)["taskRoles"]["main"]["taskStatuses"]
        assert set(task) == TASK | {"cause"} and task["cause"] == "Exit code 4"
    for path in (
        "/attempts/0/taskRoles/main/taskIndex/1/attempts",
        "/attempts/0/taskRoles/other/taskIndex/0/attempts",
        "/attempts/7/taskRoles/main/taskIndex/0/attempts",
        "/attempts/0/taskRoles/main/taskIndex/99999999999999999999/attempts",
    ):
        assert cluster.get(cluster.path(name, path)).status == 404, path


def test_detail_has_the_pending_reason_while_the_job_waits(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "true", gpu=64))
    eventually(lambda: "reason" in cluster.detail(name))
    listed = cluster.get(f"/api/v2/jobs?reasons=true&keyword={name}").json()
    assert cluster.detail(name)["reason"] == listed[0]["reason"]
    assert "64" in listed[0]["reason"]
    cluster.stop(name)
    cluster.wait_state(name, "STOPPED")
    assert "reason" not in cluster.detail(name)


ONE_AT_A_TIME = {"gangAllocation": False, "openpaisdk": {"arrayLimit": 1}}


def test_unstarted_tasks_are_in_the_detail(cluster: TeamCluster, name: str) -> None:
    work = job(name, "sleep 600", instances=3, extras=ONE_AT_A_TIME)
    work["taskRoles"]["other"] = role("true", instances=2)
    cluster.accept(work)
    cluster.wait_state(name, "RUNNING")
    roles = cluster.detail(name)["taskRoles"]
    assert list(roles) == ["main", "other"]
    assert roles["other"]["taskRoleStatus"] == {"name": "other"}
    started, *others = [one for each in roles.values() for one in each["taskStatuses"]]
    assert started["taskState"] == "RUNNING"
    assert [one["taskIndex"] for one in others] == [1, 2, 0, 1]
    for one in others:
        assert set(one) == TASK
        assert (one["taskState"], one["attemptState"], one["attemptId"]) == ("WAITING", "WAITING", 0)
        assert one["taskUid"] is one["containerId"] is one["containerIp"] is one["containerExitCode"] is None
        assert one["createdTime"] >= cluster.status(name)["createdTime"]
        assert one["launchedTime"] is one["completedTime"] is None
    assert others[1]["containerLog"] == started["containerLog"].replace("/taskIndex/0/", "/taskIndex/2/")
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"
    finished = [one for each in cluster.detail(name)["taskRoles"].values() for one in each["taskStatuses"]]
    assert [(one["taskState"], one["containerExitCode"]) for one in finished] == [("STOPPED", -210)] * 5
    assert all(one["completedTime"] for one in finished)


def test_tasks_not_needed_for_completion_never_start(cluster: TeamCluster, name: str) -> None:
    enough = {"minFailedInstances": -1, "minSucceededInstances": 1}
    cluster.run(job(name, "true", instances=3, extras=ONE_AT_A_TIME, completion=enough))
    tasks = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"]
    assert [one["taskState"] for one in tasks] == ["SUCCEEDED", "STOPPED", "STOPPED"]
    assert [one["containerExitCode"] for one in tasks] == [0, -220, -220]
    assert tasks[2]["containerExitSpec"]["code"] == -220
    assert tasks[2]["containerExitDiagnostics"] == "Stop to complete current FrameworkAttempt"


def test_config_is_also_the_text_that_was_posted(cluster: TeamCluster, name: str) -> None:
    text = "# Why it is there.\n" + yaml.safe_dump(job(name, "true"), sort_keys=False)
    cluster.submit(text)
    reply = cluster.get(cluster.path(name, "/config?submitted=true"))
    assert (reply.status, reply.text) == (200, text)
    assert reply.headers["content-type"].startswith("text/yaml")
    secret = {"secrets": {"token": "open-sesame"}}
    spec = {**job(name + "-secret", "echo <% $secrets.token %>"), **secret}
    cluster.submit("# About the password.\n" + yaml.safe_dump(spec, sort_keys=False))
    shown = cluster.get(cluster.path(name + "-secret", "/config?submitted=true")).text
    assert "# About the password." in shown and 'secrets: "******"' in shown
    spec["name"] = name + "-repeated"
    cluster.submit("# The password is open-sesame.\n" + yaml.safe_dump(spec, sort_keys=False))
    for query in ("", "?submitted=true"):
        for one in (name + "-secret", name + "-repeated"):
            assert "open-sesame" not in cluster.get(cluster.path(one, f"/config{query}")).text
    stored = [path for path in cluster.home.glob("cluster.db*") if b"open-sesame" in path.read_bytes()]
    assert stored == []


def test_config_parses_as_json_and_as_yaml(cluster: TeamCluster, name: str) -> None:
    spec = job(name, "echo  'two  spaces'", contributor="née")
    cluster.submit(yaml.safe_dump(spec, allow_unicode=True))
    reply = cluster.get(cluster.path(name, "/config"))
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/yaml")
    assert json.loads(reply.text) == yaml.safe_load(reply.text) == spec
    cluster.submit(json.dumps({**spec, "name": name + "-json"}))
    assert cluster.get(cluster.path(name + "-json", "/config")).json() == {**spec, "name": name + "-json"}


@pytest.mark.parametrize("rest", ["", "/config", "/events", "/follow", "/attempts/0", "/executionType"])
def test_missing_job_is_404(cluster: TeamCluster, rest: str) -> None:
    method, body = ("PUT", {"value": "STOP"}) if rest == "/executionType" else ("GET", None)
    for framework in ("alice~no-such-job", "nobody~x", "protocolversion", "%00", "a~b~c", "%F0%9F%90%99"):
        reply = cluster.ask(method, f"/api/v2/jobs/{framework}{rest}", body)
        assert (reply.status, reply.json()["code"]) == (404, "NoJobError"), framework


def test_only_owner_and_administrators_may_stop_a_job(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "sleep 600"))
    path = cluster.path(name, "/executionType")
    refused = cluster.ask("PUT", path, {"value": "STOP"}, token=cluster.tokens["bob"])
    assert (refused.status, refused.json()["code"]) == (403, "ForbiddenUserError")
    assert cluster.wait_state(name, "RUNNING")["executionType"] == "START"
    reply = cluster.ask("PUT", path, {"value": "STOP"}, token=cluster.tokens["admin"])
    expected = {"status": 202, "message": f"Execute job alice~{name} successfully."}
    assert (reply.status, reply.json()) == (202, expected)
    status = cluster.wait_over(name)
    assert (status["state"], status["executionType"], status["appExitCode"]) == ("STOPPED", "STOP", -210)


def test_start_of_a_stopped_job_has_no_effect(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "sleep 600"))
    path = cluster.path(name, "/executionType")
    assert cluster.ask("PUT", path, {"value": "START"}).status == 202
    assert cluster.wait_state(name, "RUNNING")["executionType"] == "START"
    assert cluster.ask("PUT", "/rest-server" + path, {"value": "STOP"}).status == 202
    before = cluster.wait_over(name)
    assert cluster.ask("PUT", path, {"value": "START"}).status == 202
    assert cluster.ask("PUT", path, {"value": "STOP"}).status == 202
    assert cluster.status(name) == before


@pytest.mark.parametrize(
    "body", ['{"value": "PAUSE"}', "{}", "[]", "", "STOP", '{"value": ["STOP"]}', '{"value": null}']
)
def test_unknown_execution_type_is_rejected(cluster: TeamCluster, name: str, body: str) -> None:
    cluster.accept(job(name, "true"))
    reply = cluster.ask(
        "PUT", cluster.path(name, "/executionType"), body, {"Content-Type": "application/json"}
    )
    assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError")


def test_events_have_the_pending_reason(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "true", cpu=4096))
    stream = cluster.follow(name)
    event_frame = next(frame for frame in stream if frame["kind"] == "event")
    stream.close()
    assert (event_frame["type"], event_frame["reason"]) == ("Warning", "FailedScheduling")
    reply = cluster.get(cluster.path(name, "/events")).json()
    assert reply["totalCount"] == len(reply["data"]) == 1
    event = reply["data"][0]
    assert event["message"] == event_frame["message"]
    assert event["message"].startswith("0/1 nodes are available: 1 Insufficient cpu. The job asks for ")
    assert event["firstTimestamp"].endswith("Z")
    assert cluster.get(cluster.path(name, "/events?type=Normal")).json() == {"totalCount": 0, "data": []}
    assert cluster.get(cluster.path(name, "/events?type=Warning")).json()["totalCount"] == 1


def test_virtual_cluster_counts_resources_of_running_jobs(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "sleep 600", gpu=2, cpu=3))
    cluster.wait_state(name, "RUNNING")
    found = cluster.get("/api/v2/virtual-clusters").json()["default"]
    assert found["resourcesTotal"]["GPUs"] == 4
    assert found["resourcesUsed"]["GPUs"] >= 2
    assert found["resourcesUsed"]["cpu"] >= 3
    assert cluster.get("/api/v2/virtual-clusters/default").json()["resourcesTotal"] == found["resourcesTotal"]
    missing = cluster.get("/api/v2/virtual-clusters/other")
    assert (missing.status, missing.json()["code"]) == (404, "NoVirtualClusterError")
    cluster.stop(name)
    cluster.wait_over(name)


@pytest.mark.parametrize("prefix", ["", "/rest-server"])
def test_healthz_is_ready(cluster: TeamCluster, prefix: str) -> None:
    reply = cluster.get(prefix + "/healthz", token=None)
    assert (reply.status, reply.text) == (200, "Pylon ready.")


def test_exit_spec_has_openpais_keys_in_their_order() -> None:
    attempt = AttemptRow(1, 0, "Completed", completed_ms=1, exit_code=-1200)
    assert list(json.loads(encode(attempt_exit_spec(attempt)))) == [
        "code", "phrase", "issuer", "causer", "type", "stage", "behavior", "reaction", "reason", "repro",
        "solution",
    ]  # fmt: skip


def test_known_cause_of_a_failure_replaces_what_the_table_says() -> None:
    info = '{"exitCode":255,"originUserExitCode":3,"caughtException":"ImportError: no torch."}'
    attempt = AttemptRow(1, 0, "Completed", completed_ms=1, exit_code=255, runtime_exit=info)
    spec, table = attempt_exit_spec(attempt), attempt_exit_spec(AttemptRow(1, 0, "Completed", exit_code=255))
    assert spec is not None
    assert table is not None
    assert (spec.reason, spec.solution) == ("ImportError: no torch.", ["Read the end of the task's log."])
    assert (spec.phrase, spec.repro) == (table.phrase, table.repro)
    assert table.reason != spec.reason
