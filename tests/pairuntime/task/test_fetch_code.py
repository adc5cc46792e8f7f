"""A version 1 job finds the code that its ``codeDir`` names."""

from __future__ import annotations

from typing import Any

from support.server_fixture import Cluster, job


def older(name: str, code: str, command: str) -> dict[str, Any]:
    role = {
        "name": "main",
        "taskNumber": 1,
        "cpuNumber": 1,
        "memoryMB": 64,
        "gpuNumber": 0,
        "command": command,
    }
    return {"jobName": name, "image": "host", "codeDir": code, "taskRoles": [role]}


def host(name: str, *commands: str) -> dict[str, Any]:
    what = job(name, *commands)
    what["prerequisites"] = [{"name": "image", "type": "dockerimage", "uri": "host"}]
    return what


def test_code_is_in_the_working_folder_and_in_pai_code_dir(cluster: Cluster) -> None:
    made = ("mkdir -p c/deep", "echo one > c/1", "echo two > c/deep/2", "hdfs dfs -mkdir -p code")
    assert cluster.run(host("makes-code", *made, "hdfs dfs -put c code/c"))["state"] == "SUCCEEDED"
    address = f"/user/{cluster.user}/code/c"
    command = "cat 1 deep/2 $PAI_CODE_DIR/1"
    reply = cluster.ask("POST", "/api/v1/jobs", older("uses-code", address, command))
    assert reply.status == 202, reply.text
    assert cluster.wait_over("uses-code")["state"] == "SUCCEEDED", cluster.log_of("uses-code")
    assert cluster.log_of("uses-code") == b"one\ntwo\none\n"
    assert "CodeDirInWorkDir" in {event["reason"] for event in cluster.events("uses-code")}


def test_missing_code_dir_fails_the_job(cluster: Cluster) -> None:
    cluster.ask("POST", "/api/v1/jobs", older("no-code", "/user/nobody/none", "echo never"))
    assert cluster.wait_over("no-code")["state"] == "FAILED"
    said = cluster.log_of("no-code")
    assert b"/user/nobody/none could not be fetched" in said
    assert b"never" not in said
