"""/api/v1: version 1 jobs are submitted, run, and read through both versions of the API."""

from __future__ import annotations

import html
import json
import re
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import yaml

from support.server_fixture import FINISHED_STATES, eventually
from support.server_fixture import job as job_v2
from support.team_cluster import NewTeam, TeamCluster

V1 = "/api/v1/user/alice/jobs"

JOB_STATUS = {
    "username", "virtualCluster", "state", "subState", "createdTime", "completedTime", "executionType",
    "retries", "retryDetails", "appId", "appProgress", "appTrackingUrl", "appLaunchedTime",
    "appCompletedTime", "appExitCode", "appExitSpec", "appExitTriggerMessage", "appExitTriggerTaskRoleName",
    "appExitTriggerTaskIndex", "appExitDiagnostics", "appExitMessages", "appExitType",
}  # fmt: skip
TASK_STATUS = {
    "taskIndex", "taskState", "containerId", "containerIp", "containerPorts", "containerGpus",
    "containerLog", "containerExitCode",
}  # fmt: skip
SUMMARY = {
    "name", "username", "state", "subState", "executionType", "retries", "retryDetails", "createdTime",
    "completedTime", "appExitCode", "virtualCluster", "totalGpuNumber", "totalTaskNumber",
    "totalTaskRoleNumber",
}  # fmt: skip


def job(
    name: str, command: str = "true", *, role: dict[str, Any] | None = None, **top: Any
) -> dict[str, Any]:
    main = {"name": "main", "command": command, "memoryMB": 16, "shmMB": 8, **(role or {})}
    return {"jobName": name, "image": "ubuntu:22.04", "taskRoles": [main], **top}


def test_job_runs_and_reads_back_in_both_versions(cluster: TeamCluster, name: str) -> None:
    spec = job(name, "echo $NAME of $PAI_USER_NAME", jobEnvs={"NAME": "job"}, retryCount=-1)
    reply = cluster.ask("POST", V1, spec)
    assert (reply.status, reply.json()) == (202, {"message": f"update job {name} successfully"})
    assert reply.headers["location"] == f"{V1}/{name}"
    unused = "This cluster runs tasks without containers: ubuntu:22.04 is not used."
    assert reply.headers.get("x-warning", unused) == unused, "nothing is lost by the conversion"
    assert cluster.wait_over(name)["state"] == "SUCCEEDED"
    assert cluster.log_of(name) == b"job of alice\n"

    assert cluster.get(f"{V1}/{name}/config").json() == spec
    converted = cluster.get(cluster.path(name, "/config")).json()
    assert (converted["protocolVersion"], converted["name"]) == (2, name)
    assert converted["taskRoles"]["main"]["commands"] == ["echo $NAME of $PAI_USER_NAME"]
    assert converted["jobRetryCount"] == -1


def test_job_paths_without_user_and_below_rest_server(cluster: TeamCluster, name: str) -> None:
    assert cluster.ask("POST", "/api/v1/jobs", job(name)).status == 202
    assert cluster.ask("POST", f"/rest-server{V1}", job(name + "-2")).status == 202
    for address in (f"/api/v1/jobs/{name}", f"/api/v1/jobs/alice~{name}", f"{V1}/{name}"):
        assert cluster.get(address).json()["name"] == name
    assert cluster.get(f"/api/v1/jobs/{name}", token=cluster.tokens["bob"]).status == 404
    assert cluster.get(f"/api/v1/jobs/alice~{name}", token=cluster.tokens["bob"]).status == 200


@pytest.mark.parametrize("host", ["[abc]", "[:]", "[1.2.3.4]:80", "[::1", "[::1]:80"])
def test_submission_does_not_depend_on_a_valid_host(cluster: TeamCluster, name: str, host: str) -> None:
    assert cluster.ask("POST", V1, job(name), {"Host": host}).status == 202
    reply = cluster.ask("POST", "/api/v2/jobs", job_v2(f"{name}-2", "true"), {"Host": host})
    assert reply.status == 202, reply.text


def test_storage_that_is_only_read_is_no_warning_unless_outputs_are_to_go_there(new_team: NewTeam) -> None:
    team = new_team("storages: [{name: default, type: own, path: storage, read-only: true}]\n")
    reply = team.ask("POST", V1, job("named-none"))
    assert reply.status == 202 and "output folder" not in reply.headers.get("x-warning", "")
    reply = team.ask("POST", V1, job("named-one", outputDir="/user/alice/results"))
    assert "The output folder /user/alice/results could not be created" in reply.headers["x-warning"]


def test_put_submits_a_job_at_its_path(cluster: TeamCluster, name: str) -> None:
    reply = cluster.ask("PUT", f"{V1}/{name}", job(name))
    assert (reply.status, reply.json()) == (202, {"message": f"update job {name} successfully"})
    other = cluster.ask("PUT", f"{V1}/{name}-2", job(name))
    assert (other.status, other.json()["code"]) == (400, "InvalidParametersError")
    again = cluster.ask("PUT", f"{V1}/{name}", job(name))
    assert (again.status, again.json()["code"]) == (409, "ConflictJobError")


ONE_ROLE = "jobName=x&image=y&taskRoles[0][name]=a&taskRoles[0][command]=b"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def form_of(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Fields of a form, as the JavaScript library `request` makes them of an object."""
    if isinstance(value, dict | list):
        items = enumerate(value) if isinstance(value, list) else value.items()
        return [
            field for key, item in items for field in form_of(item, f"{name}[{key}]" if name else str(key))
        ]
    return [(name, "" if value is None else str(value))]


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_job_sent_as_a_form(cluster: TeamCluster, name: str, method: str) -> None:
    ports = [{"label": "web", "portNumber": 2}, {"label": "more", "beginAt": 0, "portNumber": 1}]
    role = {"taskNumber": 2, "portList": ports, "minSucceededTaskCount": None}
    spec = job(name, "echo $NAME; true & wait", role=role, retryCount=-1, jobEnvs={"NAME": "é & 7"})
    spec["taskRoles"].append({"name": "second", "command": "true", "memoryMB": 16, "shmMB": 8})
    spec["extras"] = {"list": ["a", "b"], "mapping": {"0x": "c"}}
    sent = {**spec, "killAllOnCompletedTaskNumber": None, "gpuType": ""}
    path = V1 if method == "POST" else f"{V1}/{name}"
    reply = cluster.ask(method, path, urlencode(form_of(sent)), FORM)
    assert (reply.status, reply.json()) == (202, {"message": f"update job {name} successfully"}), reply.text
    stored = cluster.get(f"{V1}/{name}/config").json()
    assert stored == {**spec, "killAllOnCompletedTaskNumber": None, "gpuType": ""}
    assert cluster.wait_over(name)["state"] == "SUCCEEDED"
    assert cluster.log_of(name) == "é & 7\n".encode()
    # The same job again is a conflict, as it is in JSON.
    again = cluster.ask(method, path, urlencode(form_of(sent), safe="[]"), FORM)
    assert (again.status, again.json()["code"]) == (409, "ConflictJobError")


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("jobName=x&jobName=y", 'field "jobName" of the form is given twice'),
        ("jobName=x&taskRoles[0=1", 'field "taskRoles[0" of the form is not of the form a[0][b]'),
        ("jobName=x&image=y&image[0]=z", "inside of a field that has a value"),
        ("jobName=x&" + "a" + "[b]" * 30 + "=1", "is not of the form"),
        ("jobName=x&nothing", "The form cannot be read"),
        ("jobName=x&" + "&".join(f"a{i}=1" for i in range(10_001)), "at most 10000 fields"),
        (f"{ONE_ROLE}&taskRoles[0][cpuNumber]=many", "cpuNumber"),
        (f"{ONE_ROLE}&taskRoles[x]=1", "taskRoles"),
        ("jobName=x", "image"),
    ],
)
def test_invalid_form_is_explained(cluster: TeamCluster, form: str, message: str) -> None:
    reply = cluster.ask("POST", V1, form, FORM)
    assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError")
    assert message in reply.json()["message"]


def test_json_with_the_content_type_of_a_form_is_accepted(cluster: TeamCluster, name: str) -> None:
    """`curl -d @job.json` sends it."""
    assert cluster.ask("POST", V1, json.dumps(job(name)), FORM).status == 202


def test_comments_are_accepted_and_config_is_json_or_yaml(cluster: TeamCluster, name: str) -> None:
    text = "// mine\n" + json.dumps(job(name), indent=1).replace('"image"', '/* here */ "image"')
    text = text[: text.rindex("}")] + ",}\n"
    assert cluster.ask("POST", V1, text, {"Content-Type": "application/json"}).status == 202
    plain = cluster.get(f"{V1}/{name}/config")
    assert plain.headers["content-type"] == "application/json" and plain.json() == job(name)
    both = cluster.get(f"{V1}/{name}/config", headers={"Accept": "application/json, text/yaml"})
    assert both.json() == job(name)
    as_yaml = cluster.get(f"{V1}/{name}/config", headers={"Accept": "text/yaml"})
    assert as_yaml.headers["content-type"].startswith("text/yaml")
    assert not as_yaml.text.startswith("{") and yaml.safe_load(as_yaml.text) == job(name)


def test_lossy_conversion_warns_and_old_names_still_resolve(cluster: TeamCluster, name: str) -> None:
    dotted = "a.name." + name.rpartition("-")[2]
    spec = job(dotted, killAllOnCompletedTaskNumber=1, gpuType="K80")
    reply = cluster.ask("POST", V1, spec)
    assert reply.status == 202
    for text in ("killAllOnCompletedTaskNumber", "gpuType", dotted):
        assert text in reply.headers["x-warning"], reply.headers
    changed = dotted.replace(".", "_")
    assert reply.headers["location"] == f"{V1}/{changed}"
    assert reply.json()["message"] == f"update job {changed} successfully"
    for one in (dotted, changed):
        assert cluster.get(f"{V1}/{one}").json()["name"] == changed
        assert cluster.get(f"{V1}/{one}/config").json() == spec
    assert cluster.get(cluster.path(changed)).status == 200


def test_warning_fits_into_a_header(cluster: TeamCluster, name: str) -> None:
    roles = [{"name": f"r.{i}", "command": "true", "memoryMB": 8, "shmMB": 8} for i in range(60)]
    spec = {"jobName": name, "image": "x", "taskRoles": roles}
    reply = cluster.ask("POST", V1, json.dumps(spec) + "\nNotizen: für später")
    assert reply.status == 202
    assert len(reply.headers["x-warning"]) <= 2000 and reply.headers["x-warning"].isascii()


def test_same_key_and_body_make_one_job(cluster: TeamCluster, name: str) -> None:
    replies = [cluster.ask("POST", V1, job(name), {"Idempotency-Key": name}) for _ in range(3)]
    assert {(reply.status, reply.body) for reply in replies} == {(202, replies[0].body)}
    assert cluster.ask("POST", V1, job(name)).status == 409
    assert cluster.submit(job_v2(name, "true")).status == 409


@pytest.mark.parametrize("spec", [
    "", "[]", "{", "null", "name: x", json.dumps(job_v2("x", "true")), json.dumps({"jobName": "x"}),
    json.dumps(job("x", taskRoles=[])), json.dumps(job("no spaces")),
    json.dumps(job("x", role={"cpuNumber": "a"})),
    json.dumps(job("x", role={"minFailedTaskCount": 2})), json.dumps(job("x", role={"taskNumber": 10**9})),
    json.dumps(job("x", extras={"openpaisdk": {"nonsense": 1}})), b"\xff\xfe\x00", "[" * 5000, '{"a":' * 5000,
])  # fmt: skip
def test_invalid_job_is_rejected_with_a_message(cluster: TeamCluster, spec: str | bytes) -> None:
    reply = cluster.ask("POST", V1, spec, {"Content-Type": "application/json"})
    error = reply.json()
    assert reply.status == 400, error
    assert error["code"] == "InvalidParametersError" and error["message"].strip()
    assert cluster.get(f"{V1}/x").status == 404


def test_unknown_virtual_cluster_is_404_in_both_versions(cluster: TeamCluster, name: str) -> None:
    reply = cluster.ask("POST", V1, job(name, virtualCluster="nowhere"))
    assert (reply.status, reply.json()["code"]) == (404, "NoVirtualClusterError")
    assert reply.json()["message"] == "There is no virtual cluster nowhere."
    assert reply.json()["hint"] == "Virtual clusters you may use: default."
    v2 = cluster.submit(job_v2(name, "true", defaults={"virtualCluster": "nowhere"}))
    assert (v2.status, v2.json()) == (reply.status, reply.json())


def test_submitting_for_another_user_or_without_token_is_refused(cluster: TeamCluster, name: str) -> None:
    reply = cluster.ask("POST", V1, job(name), token=cluster.tokens["bob"])
    assert (reply.status, reply.json()["code"]) == (403, "ForbiddenUserError")
    cluster.ask("POST", V1, job(name))
    for method, path, body in (
        ("POST", V1, job(name + "-2")),
        ("PUT", f"{V1}/{name}", job(name)),
        ("GET", V1, None),
        ("GET", "/api/v1/jobs", None),
        ("GET", f"{V1}/{name}", None),
        ("GET", f"{V1}/{name}/config", None),
        ("GET", f"{V1}/{name}/ssh", None),
        ("PUT", f"{V1}/{name}/executionType", {"value": "STOP"}),
        ("DELETE", f"{V1}/{name}", None),
        ("GET", "/api/v1/virtual-clusters", None),
        ("GET", "/api/v1/virtual-clusters/default", None),
    ):
        reply = cluster.ask(method, path, body, token=None)
        assert (reply.status, reply.json()["code"]) == (401, "UnauthorizedUserError"), (method, path)


def test_lists_have_version_1_format_newest_first(cluster: TeamCluster, name: str) -> None:
    for end in ("-a", "-b"):
        cluster.ask("POST", V1, job(name + end))
    cluster.submit(job_v2(name + "-c", "true"), token=cluster.tokens["bob"])
    mine = cluster.get(V1).json()
    assert {one["username"] for one in mine} == {"alice"}
    assert set(mine[0]) == SUMMARY
    assert mine[0]["retryDetails"] == {"user": 0, "platform": 0, "resource": 0}
    assert [one["name"] for one in mine if one["name"].startswith(name)] == [name + "-b", name + "-a"]
    every = [one["name"] for one in cluster.get(f"/api/v1/jobs?keyword={name}").json()]
    assert sorted(every) == [name + end for end in ("-a", "-b", "-c")]
    bobs = cluster.get("/api/v1/jobs?username=bob").json()
    assert name + "-c" in [one["name"] for one in bobs] and {one["username"] for one in bobs} == {"bob"}
    assert cluster.get(f"/api/v1/jobs?keyword={name}&limit=1&withTotalCount=true").json()[0]["name"] in every
    assert cluster.get("/api/v1/jobs?limit=x").status == 400


def test_detail_has_version_1_format(cluster: TeamCluster, name: str) -> None:
    ports = [{"label": "web", "beginAt": 0, "portNumber": 2}]
    cluster.ask("POST", V1, job(name, role={"taskNumber": 2, "gpuNumber": 1, "portList": ports}))
    assert cluster.wait_over(name)["state"] == "SUCCEEDED"
    found = cluster.get(f"{V1}/{name}").json()
    assert set(found) == {"name", "jobStatus", "taskRoles"} and found["name"] == name
    assert set(found["jobStatus"]) == JOB_STATUS
    assert found["jobStatus"]["state"] == "SUCCEEDED" and found["jobStatus"]["appExitCode"] == 0
    role = found["taskRoles"]["main"]
    assert role["taskRoleStatus"] == {"name": "main"}
    assert [task["taskIndex"] for task in role["taskStatuses"]] == [0, 1]
    for task in role["taskStatuses"]:
        assert set(task) == TASK_STATUS
        assert re.fullmatch(r"\d+,\d+", task["containerPorts"]["web"])
        assert re.fullmatch(r"\d+", task["containerPorts"]["ssh"])
        assert (task["taskState"], task["containerExitCode"]) == ("SUCCEEDED", 0)
    bits = [task["containerGpus"] for task in role["taskStatuses"]]
    assert all(bit.bit_count() == 1 for bit in bits) and bits[0] != bits[1]


def test_version_2_jobs_are_visible(cluster: TeamCluster, name: str) -> None:
    spec = job_v2(name, "echo hi", secrets={"a": "hush"})
    cluster.run(spec)
    assert cluster.get(f"{V1}/{name}").json()["jobStatus"]["state"] == "SUCCEEDED"
    assert cluster.get(f"{V1}/{name}/config").json() == {**spec, "secrets": "******"}


def page(cluster: TeamCluster, address: str, **headers: str) -> Any:
    where = urlsplit(address)
    assert (where.hostname, where.port) == cluster.address
    return cluster.get(where.path + ("?" + where.query if where.query else ""), token=None, headers=headers)


def test_logs_are_pages_below_one_url_without_token(cluster: TeamCluster, name: str) -> None:
    cluster.ask("POST", V1, job(name, "echo; echo '<b>&amp; ä'; echo oops >&2"))
    cluster.wait_over(name)
    address = cluster.get(f"{V1}/{name}").json()["taskRoles"]["main"]["taskStatuses"][0]["containerLog"]
    assert address.endswith("/")
    for end in ("user.pai.stdout/?start=0", "user.pai.stdout", "stdout/?start=0"):
        reply = page(cluster, address + end)
        assert reply.status == 200 and reply.headers["content-type"].startswith("text/html")
        shown = re.findall(r"<pre>\n(.*)</pre>", reply.text, re.DOTALL)
        assert [html.unescape(text) for text in shown] == ["\n<b>&amp; ä\n"]
        assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert page(cluster, address + "user.pai.stderr/?start=0", Accept="text/plain").body == b"oops\n"
    assert page(cluster, address + "user.pai.stderr/?start=-3", Accept="text/plain").body == b"ps\n"
    assert page(cluster, address + "user.pai.stderr/?start=99", Accept="text/plain").body == b""
    assert "user.pai.stdout/?start=0" in page(cluster, address).text
    for bad in ("x", "--1", "²", "9" * 30):
        from urllib.parse import quote

        assert page(cluster, f"{address}stdout/?start={quote(bad)}").status == 400
    assert page(cluster, address + "runtime.pai.agg.error/?start=0").status == 404
    other = re.sub(r"[^/]+/$", "11111111-2222-3333-4444-555555555555/", address)
    assert page(cluster, other + "stdout/").status == 401


def test_log_without_start_shows_its_tail(cluster: TeamCluster, name: str) -> None:
    cluster.ask("POST", V1, job(name, "for ((i=0;i<1000;i++)); do printf 'line %04d\\n' $i; done"))
    cluster.wait_over(name)
    address = cluster.get(f"{V1}/{name}").json()["taskRoles"]["main"]["taskStatuses"][0]["containerLog"]
    shown = page(cluster, address + "user.pai.stdout", Accept="text/plain").body
    assert len(shown) == 4096 and shown.endswith(b"line 0999\n")


def test_stopped_job_is_deleted_and_its_name_is_free(cluster: TeamCluster, name: str) -> None:
    cluster.ask("POST", V1, job(name, "sleep 600"))
    cluster.wait_state(name, "RUNNING")
    running = cluster.ask("DELETE", f"{V1}/{name}?finished=only")
    assert (running.status, running.json()["code"]) == (409, "RemoveRunningJobError")
    assert "Stop it first" in running.json()["hint"]
    for who, status in (("bob", 403), ("alice", 202)):
        token = cluster.tokens[who]
        reply = cluster.ask("PUT", f"{V1}/{name}/executionType", {"value": "STOP"}, token=token)
        assert reply.status == status
    assert reply.json() == {"message": f"execute job {name} successfully"}
    assert cluster.wait_state(name, *FINISHED_STATES)["state"] == "STOPPED"
    uid = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    folder = next(cluster.home.glob(f"tasks/*/{uid}"))
    assert cluster.ask("DELETE", f"{V1}/{name}", token=cluster.tokens["bob"]).status == 403
    gone = cluster.ask("DELETE", f"{V1}/{name}")
    assert (gone.status, gone.json()) == (202, {"message": f"deleted job {name} successfully"})
    assert not folder.exists()
    assert cluster.get(f"{V1}/{name}").status == 404
    assert cluster.get(cluster.path(name)).status == 404
    assert cluster.ask("DELETE", f"{V1}/{name}").status == 404
    assert cluster.ask("POST", V1, job(name)).status == 202
    assert cluster.wait_over(name)["state"] == "SUCCEEDED"


def test_running_job_is_stopped_and_deleted_in_one_call(cluster: TeamCluster, name: str) -> None:
    cluster.ask("POST", V1, job(name, "sleep 600"))
    cluster.wait_state(name, "RUNNING")
    assert cluster.ask("DELETE", f"{V1}/{name}", token=cluster.tokens["bob"]).status == 403
    gone = cluster.ask("DELETE", f"{V1}/{name}")
    assert (gone.status, gone.json()) == (202, {"message": f"deleted job {name} successfully"})
    assert cluster.get(f"{V1}/{name}").status == 404
    assert cluster.ask("POST", V1, job(name)).status == 202, "its name is free"
    assert cluster.wait_over(name)["state"] == "SUCCEEDED"


@pytest.mark.parametrize("rest", ["", "/config", "/ssh"])
def test_missing_job_is_404(cluster: TeamCluster, rest: str) -> None:
    reply = cluster.get(f"{V1}/none{rest}")
    assert (reply.status, reply.json()["code"]) == (404, "NoJobError")


def test_job_without_ssh_has_no_ssh_info(cluster: TeamCluster, name: str) -> None:
    cluster.ask("POST", V1, job(name))
    reply = cluster.get(f"{V1}/{name}/ssh")
    assert (reply.status, reply.json()["code"]) == (404, "NoJobSshInfoError")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_info_of_version_1(cluster: TeamCluster, method: str) -> None:
    info = cluster.ask(method, "/api/v1", token=None).json()
    ours = {"containers", "maxSourcesBytes"}
    assert set(info) == {"name", "version", "launcherType", "authnMethod", *ours}
    assert info["name"] == "PAI RESTful API"
    assert info["containers"] is False


def test_virtual_clusters_have_version_1_format(cluster: TeamCluster, name: str) -> None:
    cluster.ask("POST", V1, job(name, "sleep 600", role={"gpuNumber": 1}))
    cluster.wait_state(name, "RUNNING")
    cluster.ask("POST", V1, job(name + "-2", "sleep 600", role={"gpuNumber": 99}))

    def seen() -> dict[str, Any] | None:
        found: dict[str, Any] = cluster.get("/api/v1/virtual-clusters").json()["default"]
        return found if found["numActiveJobs"] and found["numPendingJobs"] else None

    vc = eventually(seen, "a running and a pending job")
    assert set(vc) == {
        "capacity", "maxCapacity", "usedCapacity", "numActiveJobs", "numJobs", "numPendingJobs",
        "resourcesUsed", "resourcesTotal", "dedicated", "nodeList", "status",
    }  # fmt: skip
    assert vc["numJobs"] == vc["numActiveJobs"] + vc["numPendingJobs"]
    assert set(vc["resourcesTotal"]) == set(vc["resourcesUsed"]) == {"memory", "vCores", "GPUs"}
    assert vc["resourcesTotal"]["GPUs"] == 4 and vc["resourcesUsed"]["GPUs"] >= 1
    assert (vc["status"], vc["nodeList"]) == ("RUNNING", ["127.0.0.1"])
    assert set(cluster.get("/api/v1/virtual-clusters/default").json()) == set(vc)
    assert cluster.get("/api/v1/virtual-clusters/none").json()["code"] == "NoVirtualClusterError"
    for one in (name, name + "-2"):
        cluster.stop(one)
        cluster.wait_over(one)
