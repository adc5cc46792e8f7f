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


def test_code_folder_itself_is_in_the_working_folder_as_in_openpai(cluster: Cluster) -> None:
    """As the examples of OpenPAI and the form of its extension for VS Code name their programs."""
    made = ("mkdir -p c/part", "echo one > c/1", "echo two > c/part/2", "hdfs dfs -mkdir -p apps")
    assert cluster.run(host("makes-apps", *made, "hdfs dfs -put c apps/digits"))["state"] == "SUCCEEDED"
    address = f"$PAI_DEFAULT_FS_URI/user/{cluster.user}/apps/digits/"
    command = "cat digits/1 digits/part/2 1 part/2 && ls && ls $PAI_CODE_DIR"
    reply = cluster.ask("POST", "/api/v1/jobs", older("as-openpai", address, command))
    assert reply.status == 202, reply.text
    assert cluster.wait_over("as-openpai")["state"] == "SUCCEEDED", cluster.log_of("as-openpai")
    assert cluster.log_of("as-openpai").split() == b"one two one two 1 digits part 1 part".split()
    assert "CodeDirCollision" not in {event["reason"] for event in cluster.events("as-openpai")}


def test_folder_wins_over_one_of_the_same_name_in_it_and_an_event_says_so(cluster: Cluster) -> None:
    made = (
        "mkdir -p code/code",
        "echo outer > code/1",
        "echo inner > code/code/1",
        "hdfs dfs -mkdir -p same",
    )
    assert cluster.run(host("makes-same", *made, "hdfs dfs -put code same/"))["state"] == "SUCCEEDED"
    command = "cat code/1 code/code/1 1 $PAI_CODE_DIR/1 $PAI_CODE_DIR/code/1"
    reply = cluster.ask(
        "POST", "/api/v1/jobs", older("same-name", f"/user/{cluster.user}/same/code", command)
    )
    assert reply.status == 202, reply.text
    assert cluster.wait_over("same-name")["state"] == "SUCCEEDED", cluster.log_of("same-name")
    out = cluster.log_of("same-name", "stdout")
    assert out.split() == b"outer inner outer outer inner".split()
    [event] = [event for event in cluster.events("same-name") if event["reason"] == "CodeDirCollision"]
    assert event["type"] == "Warning" and "the other one is code/code." in event["message"]


def test_code_dir_that_is_no_address_fails_the_job_alone(cluster: Cluster) -> None:
    reply = cluster.ask("POST", "/api/v1/jobs", older("no-address", "hdfs://[x/code", "echo never"))
    assert reply.status == 202, reply.text
    assert cluster.wait_over("no-address")["state"] == "FAILED"
    assert b"hdfs://[x/code' is not an address" in cluster.log_of("no-address")


def test_missing_code_dir_fails_the_job(cluster: Cluster) -> None:
    cluster.ask("POST", "/api/v1/jobs", older("no-code", "/user/nobody/none", "echo never"))
    assert cluster.wait_over("no-code")["state"] == "FAILED"
    said = cluster.log_of("no-code")
    assert b"/user/nobody/none could not be fetched" in said
    assert b"never" not in said
