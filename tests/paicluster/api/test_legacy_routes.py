"""Less frequent routes: legacy attempts, tags, nodes, pods, alerts, log manager, version 1 paths."""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import urlencode

import pytest

from support.server_fixture import SSH_SERVER, Reply, eventually, job
from support.team_cluster import PASSWORD, TeamCluster

JOB_ATTEMPT = {
    "jobName", "frameworkName", "uid", "userName", "state", "originState", "attemptIndex", "jobStartedTime",
    "attemptStartedTime", "attemptCompletedTime", "exitCode", "exitPhrase", "exitType", "exitDiagnostics",
    "appExitTriggerMessage", "appExitTriggerTaskRoleName", "appExitTriggerTaskIndex", "appExitSpec",
    "appExitDiagnostics", "appExitMessages", "totalGpuNumber", "totalTaskNumber", "totalTaskRoleNumber",
    "jobPriority", "taskRoles", "isLatest",
}  # fmt: skip


def admin(cluster: TeamCluster, method: str, path: str, body: Any = None) -> Reply:
    return cluster.ask(method, path, body, token=cluster.tokens["admin"])


# -- attempts ----------------------------------------------------------------------------------------


def test_attempts_in_legacy_format(cluster: TeamCluster, name: str) -> None:
    cluster.run(job(name, "exit 4", jobRetryCount=2))
    where = cluster.path(name, "/job-attempts")
    listed = cluster.get(where).json()
    assert [(one["attemptIndex"], one["isLatest"]) for one in listed] == [(2, True), (0, False), (1, False)]
    for one in listed:
        assert set(one) == JOB_ATTEMPT
        assert (one["jobName"], one["userName"], one["state"]) == (name, "alice", "FAILED")
        assert (one["exitCode"], one["exitType"]) == (255, "Failed")
        assert one["appExitSpec"]["code"] == 255 and one["exitDiagnostics"]["launcher"]
        task = one["taskRoles"]["main"]["taskStatuses"][0]
        assert (task["taskIndex"], task["taskState"], task["containerExitCode"]) == (0, "FAILED", 255)
        assert cluster.get(f"{where}/{one['attemptIndex']}").json() == one
    assert cluster.get(f"{where}?offset=1&limit=1").json() == listed[1:2]
    health = cluster.get(f"{where}/healthz")
    assert (health.status, health.text) == (200, "ok")
    missing = cluster.get(f"{where}/7")
    assert (missing.status, missing.json()["code"]) == (404, "NoJobError")
    none = cluster.get(cluster.path("none", "/job-attempts"))
    assert (none.status, none.body) == (404, b"null")
    assert cluster.get(cluster.path("none", "/job-attempts/0")).status == 404
    for rest in ("", "/0", "/healthz"):
        assert cluster.get(where + rest, token=None).status == 401


def test_pending_job_has_one_attempt(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "true", gpu=99))
    listed = cluster.get(cluster.path(name, "/job-attempts")).json()
    assert [(one["attemptIndex"], one["state"], one["taskRoles"]) for one in listed] == [(0, "WAITING", {})]
    cluster.stop(name)
    cluster.wait_over(name)


# -- tags --------------------------------------------------------------------------------------------


def test_tags_are_added_and_removed(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "true"))
    framework = f"alice~{name}"
    where = cluster.path(name, "/tag")
    for _ in range(2):
        added = cluster.ask("PUT", where, {"value": "good one"})
        message = f"Add tag good one for job {framework} successfully."
        assert (added.status, added.json()) == (200, {"status": 200, "message": message})
    assert admin(cluster, "PUT", where, {"value": "seen"}).status == 200
    assert cluster.detail(name)["tags"] == ["good one", "seen"]
    found = cluster.get(f"/api/v2/jobs?keyword={name}&tagsContain=seen").json()
    assert [one["tags"] for one in found] == [["good one", "seen"]]
    assert cluster.get(f"/api/v2/jobs?keyword={name}&tagsNotContain=seen").json() == []
    gone = cluster.ask("DELETE", where, {"value": "seen"})
    message = f"Delete tag seen from job {framework} successfully."
    assert (gone.status, gone.json()) == (200, {"status": 200, "message": message})
    again = cluster.ask("DELETE", where, {"value": "seen"})
    assert (again.status, again.json()["code"]) == (404, "NoTagError")
    for method in ("PUT", "DELETE"):
        refused = cluster.ask(method, where, {"value": "x"}, token=cluster.tokens["bob"])
        assert (refused.status, refused.json()["code"]) == (403, "ForbiddenUserError")
        missing = cluster.ask(method, cluster.path("none", "/tag"), {"value": "x"})
        assert (missing.status, missing.json()["code"]) == (404, "NoJobError")
        for bad in ({}, {"value": ""}, {"value": "a,b"}, {"value": 3}, {"value": "x" * 300}, {"tag": "x"}):
            reply = cluster.ask(method, where, bad)
            assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError"), bad
    assert cluster.detail(name)["tags"] == ["good one"]


# -- nodes, pods, alerts -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_nodes_and_pods_are_for_administrators_only(cluster: TeamCluster, name: str, version: str) -> None:
    name += version
    cluster.accept(job(name, "sleep 600", instances=3, gpu=1, memory_mb=32))
    cluster.wait_state(name, "RUNNING")
    where = f"/api/{version}/kubernetes"
    nodes = admin(cluster, "GET", f"{where}/nodes").json()
    assert nodes["kind"] == "NodeList" and len(nodes["items"]) == 1
    node = nodes["items"][0]
    assert node["status"]["capacity"] == {"cpu": "64", "memory": "65536Mi", "nvidia.com/gpu": "4"}
    assert {"type": "InternalIP", "address": "127.0.0.1"} in node["status"]["addresses"]

    def job_pods(query: str = "") -> list[dict[str, Any]]:
        items = admin(cluster, "GET", f"{where}/pods{query}").json()["items"]
        return [one for one in items if one["metadata"]["labels"]["jobName"] == name]

    eventually(
        lambda: [pod["status"]["phase"] for pod in job_pods()] == ["Running"] * 3, "three running pods"
    )
    pod = job_pods("?namespace=default")[1]
    assert pod["metadata"]["labels"]["userName"] == "alice"
    assert (pod["metadata"]["labels"]["FC_TASK_INDEX"], pod["spec"]["nodeName"]) == (
        "1",
        node["metadata"]["name"],
    )
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "1", "memory": "32Mi", "nvidia.com/gpu": "1"}
    assert admin(cluster, "GET", f"{where}/pods?namespace=kube-system").json()["items"] == []
    seen, more = [], "0"
    while more is not None:
        page = admin(cluster, "GET", f"{where}/pods?limit=2&continue={more}").json()
        assert len(page["items"]) <= 2
        seen += [one["metadata"]["uid"] for one in page["items"]]
        more = page["metadata"].get("continue")
    assert {one["metadata"]["uid"] for one in job_pods()} <= set(seen) and len(seen) == len(set(seen))
    for kind in ("nodes", "pods"):
        refused = cluster.get(f"{where}/{kind}")
        assert (refused.status, refused.json()["code"]) == (403, "ForbiddenUserError")
        assert cluster.get(f"{where}/{kind}", token=None).status == 401
    cluster.stop(name)
    cluster.wait_over(name)
    assert job_pods() == []


def test_alerts_for_jobs_pending_for_long(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, "true", gpu=99))
    assert [one for one in cluster.get("/api/v2/alerts").json() if name in one["labels"]["job_name"]] == []
    database = sqlite3.connect(cluster.home / "cluster.db", timeout=90)
    with database:
        database.execute("UPDATE jobs SET submission_ms = submission_ms - 3600000 WHERE name = ?", (name,))
    database.close()

    def job_alerts(token: str, path: str = "/api/v2/alerts") -> list[dict[str, Any]]:
        body = cluster.get(path, token=token).json()
        found = body if isinstance(body, list) else body["data"]
        return [one for one in found if one["labels"].get("job_name") == f"alice~{name}"]

    alert = job_alerts(cluster.token)[0]
    assert alert["labels"]["alertname"] == "PaiJobPending" and alert["labels"]["username"] == "alice"
    assert alert["status"]["state"] == "active" and alert["startsAt"].endswith("Z")
    assert job_alerts(cluster.tokens["admin"]) == [alert] and job_alerts(cluster.tokens["bob"]) == []
    assert job_alerts(cluster.token, "/alert-manager/api/v1/alerts?silenced=false&inhibited=false") == [alert]
    assert cluster.get("/api/v2/alerts", token=None).status == 401
    cluster.stop(name)
    cluster.wait_over(name)
    assert job_alerts(cluster.token) == []


# -- logs and pages ------------------------------------------------------------------------------------


def test_log_manager_api(cluster: TeamCluster, name: str) -> None:
    cluster.run(job(name, "echo out; echo err >&2"))
    task = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]
    base = "/log-manager/127.0.0.1:9103"
    credentials = {"username": "bob", "password": PASSWORD}
    made = cluster.ask("POST", f"{base}/api/v1/tokens", credentials, token=None)
    assert made.status == 200 and set(made.json()) == {"token"}
    query = {
        "username": "alice",
        "framework-name": cluster.detail(name)["debugId"],
        "taskrole": "main",
        "pod-uid": task["containerId"],
        "token": made.json()["token"],
    }
    listed = cluster.get(f"{base}/api/v1/logs?{urlencode(query)}", token=None).json()
    assert set(listed) == {"stdout", "stderr", "all"}
    assert cluster.get(base + listed["stdout"], token=None).body == b"out\n"
    tail = cluster.get(base + listed["stderr"] + "&tail-mode=true", token=None)
    assert (tail.status, tail.body) == (206, b"err\n")
    wrong = cluster.ask("POST", f"{base}/api/v1/tokens", {**credentials, "password": "not this"}, token=None)
    assert (wrong.status, wrong.json()["code"]) == (400, "IncorrectPasswordError")
    query["token"] = "1.x"
    assert cluster.get(f"{base}/api/v1/logs?{urlencode(query)}", token=None).status == 401
    del query["token"]
    assert cluster.get(f"{base}/api/v1/logs?{urlencode(query)}", token=None).status == 401
    assert cluster.get(f"{base}/api/v1/logs?{urlencode(query)}").status == 200
    query["pod-uid"] = "none"
    missing = cluster.get(f"{base}/api/v1/logs?{urlencode(query)}")
    assert (missing.status, missing.json()["code"]) == (404, "NoTaskLogError")


# -- version 1 paths of version 2 functions -----------------------------------------------------------


def test_version_1_tokens_and_logins(cluster: TeamCluster) -> None:
    authn_info = cluster.get("/api/v1/authn/info", token=None).json()
    assert authn_info == {
        "authn_type": "basic",
        "loginURI": "/api/v1/authn/basic/login",
        "loginURIMethod": "post",
    }
    credentials = {"username": "bob", "password": PASSWORD, "expiration": 3600}
    token = cluster.ask("POST", authn_info["loginURI"], credentials, token=None).json()["token"]
    checked = cluster.get("/api/v1/token/check", token=token).json()
    assert checked["username"] == "bob" and checked["exp"] - checked["iat"] == 7 * 24 * 3600
    assert token in cluster.get("/api/v1/token", token=token).json()["tokens"]
    made = cluster.ask("POST", "/api/v1/token/application", token=token).json()
    assert made["application"] is True
    revoked = cluster.ask("DELETE", f"/api/v1/token/{made['token']}", token=token)
    assert (revoked.status, revoked.json()) == (200, {"message": "revoke successfully"})
    assert cluster.get("/api/v1/token/check", token=made["token"]).status == 401
    gone = cluster.ask("DELETE", "/api/v1/authn/basic/logout", token=token)
    assert (gone.status, gone.json()) == (200, {"message": "Logout successfully"})
    assert cluster.get("/api/v1/token/check", token=token).status == 401
    for bad in (59, 604801, "soon", True):
        reply = cluster.ask("POST", "/api/v1/token", {**credentials, "expiration": bad}, token=None)
        assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError"), bad


def test_named_token_can_be_revoked_by_its_id(cluster: TeamCluster) -> None:
    made = cluster.ask("POST", "/api/v2/tokens/application", {"name": "nightly build"}).json()["token"]
    plain = cluster.get("/api/v2/tokens").json()
    assert set(plain) == {"tokens"} and made in plain["tokens"]
    listed = cluster.get("/api/v2/tokens?details").json()
    one = next(one for one in listed["details"] if one["name"] == "nightly build")
    assert one["application"] is True and one["expirationTime"] is None
    assert listed["tokens"][listed["details"].index(one)] == made
    assert cluster.ask("DELETE", f"/api/v2/tokens/{one['id']}", token=cluster.tokens["bob"]).status == 403
    assert cluster.ask("DELETE", f"/api/v2/tokens/{one['id']}").status == 200
    assert cluster.get("/api/v2/tokens/check", token=made).status == 401


def test_finished_job_has_no_ssh_info(cluster: TeamCluster, name: str) -> None:
    cluster.run(job(name, "true"))
    for path in (cluster.path(name, "/ssh"), f"/api/v1/user/alice/jobs/{name}/ssh"):
        reply = cluster.get(path)
        assert (reply.status, reply.json()["code"]) == (404, "NoJobSshInfoError")
        assert "No task of the job is running" in reply.json()["hint"]
    assert cluster.get(cluster.path("none", "/ssh")).json()["code"] == "NoJobError"


def test_ssh_info_has_addresses_and_only_the_owner_gets_the_key(cluster: TeamCluster, name: str) -> None:
    cluster.accept(job(name, SSH_SERVER))
    cluster.wait_state(name, "RUNNING")
    where = f"/api/v1/user/alice/jobs/{name}/ssh"
    # Until its own server answers, the job is reached through the cluster's endpoint.
    ssh_info = eventually(
        lambda: (
            reply.json()
            if (reply := cluster.get(where)).status == 200 and "hostKey" not in reply.json()
            else None
        ),
        "the SSH server of the task",
    )
    assert not [event for event in cluster.events(name) if event["reason"] == "SshNotServed"]
    task = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]
    assert ssh_info["containers"] == [
        {"id": task["containerId"], "sshIp": task["containerIp"], "sshPort": task["containerPorts"]["ssh"]}
    ]
    pair = ssh_info["keyPair"]
    assert pair["privateKeyFileName"] == f"alice~{name}"
    assert pair["publicKeyFileName"] == f"alice~{name}.pub"
    link = pair["privateKeyDirectDownloadLink"]
    host, port = cluster.address
    path = link.removeprefix(f"http://{host}:{port}")
    assert path.split("?")[0].endswith(f"/alice~{name}")
    key = cluster.get(path, token=None)
    assert key.status == 200 and key.text.startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert cluster.get(path, token=None).body == key.body, "a key pair is generated once"
    other = cluster.get(where, token=cluster.tokens["bob"]).json()
    assert other["keyPair"]["privateKeyDirectDownloadLink"] == ""
    assert cluster.get(f"/ssh-keys/1.x/alice~{name}", token=None).status == 401
    cluster.stop(name)
    cluster.wait_over(name)
    finished = cluster.get(where)
    assert (finished.status, finished.json()["code"]) == (404, "NoJobSshInfoError")
