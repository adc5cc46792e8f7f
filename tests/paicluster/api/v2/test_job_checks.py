"""`POST /api/v2/job-checks`: problems of a job file, with their places."""

from __future__ import annotations

import json
from typing import Any

from paiprotocol.jobs.problems import MAX_PROBLEMS
from support.server_fixture import job
from support.team_cluster import TeamCluster


def check(cluster: TeamCluster, text: str) -> dict[str, Any]:
    reply = cluster.ask("POST", "/api/v2/job-checks", text.encode(), {"Content-Type": "text/yaml"})
    assert reply.status == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_valid_job_has_a_name_and_no_problems(cluster: TeamCluster) -> None:
    text = json.dumps(job("fine", "true"))
    assert check(cluster, text) == {"version": 2, "name": "fine", "problems": [], "warnings": []}


def test_problems_have_their_place_and_key(cluster: TeamCluster) -> None:
    found = check(cluster, "protocolVersion: 2\nname: x\ntype: job\ntaskRoles:\n  main: {instances: 0}\n")
    assert found["name"] is None
    [problem] = [one for one in found["problems"] if one["key"] == "taskRoles.main.instances"]
    assert (problem["line"], problem["column"]) == (5, 21)
    assert problem["message"] == "expected a whole number of at least 1, found 0"


def test_text_that_cannot_be_parsed_has_the_place_of_the_error(cluster: TeamCluster) -> None:
    [problem] = check(cluster, "taskRoles: [")["problems"]
    assert problem["line"] > 0 and problem["message"]


def test_job_of_version_1_is_recognised(cluster: TeamCluster) -> None:
    role = {
        "name": "main",
        "taskNumber": 1,
        "cpuNumber": 1,
        "memoryMB": 64,
        "gpuNumber": 0,
        "command": "true",
    }
    good = {"jobName": "old", "image": "ubuntu:22.04", "taskRoles": [role]}
    assert check(cluster, json.dumps(good)) == {
        "version": 1,
        "name": "old",
        "problems": [],
        "warnings": ["This cluster runs tasks without containers: ubuntu:22.04 is not used."],
    }
    bad = check(cluster, json.dumps({**good, "taskRoles": [{**role, "taskNumber": 0}]}))
    assert bad["version"] == 1 and "taskNumber" in bad["problems"][0]["key"]


def test_number_of_problems_is_limited(cluster: TeamCluster) -> None:
    roles = {f"role{number}": {} for number in range(MAX_PROBLEMS)}
    found = check(cluster, json.dumps({**job("many", "true"), "taskRoles": roles}))
    assert len(found["problems"]) == MAX_PROBLEMS


def test_job_that_can_never_start_is_warned_of_with_both_numbers(cluster: TeamCluster) -> None:
    large = job("large", "true")
    large["taskRoles"]["main"]["resourcePerInstance"]["cpu"] = 5000
    found = check(cluster, json.dumps(large))
    assert (found["name"], found["problems"]) == ("large", [])
    [warning] = found["warnings"]
    assert "stays pending" in warning and "5000 cores" in warning
    assert cluster.get("/api/v2/jobs/alice~large").status == 404


def test_what_a_submission_would_be_refused_for_is_a_problem(cluster: TeamCluster) -> None:
    elsewhere = {**job("elsewhere", "true"), "defaults": {"virtualCluster": "nowhere"}}
    [problem] = check(cluster, json.dumps(elsewhere))["problems"]
    assert problem["message"].startswith("There is no virtual cluster nowhere; virtual clusters you may use")
    after = {**job("after", "true"), "extras": {"openpaisdk": {"after": [{"job": "missing"}]}}}
    [problem] = check(cluster, json.dumps(after))["problems"]
    assert "alice~missing is not found" in problem["message"]
