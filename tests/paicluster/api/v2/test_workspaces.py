"""The workspace that a job names is checked when the job is submitted, not when its outputs are stored."""

from __future__ import annotations

from typing import Any

import pytest

from support.server_fixture import job
from support.team_cluster import TeamCluster


def in_workspace(name: str, folder: str) -> dict[str, Any]:
    write = 'mkdir -p "$PAI_OUTPUT_DIR"; echo kept > "$PAI_OUTPUT_DIR/file"'
    return job(name, write, parameters={"work_directory": folder})


def test_workspace_of_another_user_is_refused(cluster: TeamCluster) -> None:
    reply = cluster.submit(in_workspace("not-mine", "/bob/x"))
    assert reply.status == 403, reply.text
    assert "could not write to its workspace /bob/x: Permission denied" in reply.json()["message"]
    assert cluster.get(cluster.path("not-mine")).status == 404


@pytest.mark.parametrize(
    ("folder", "status"), [("/user/bob/x", 403), ("/alice/../bob/x", 400), ("/user/alice/a-file/x", 400)]
)
def test_folder_that_cannot_be_made_is_refused(cluster: TeamCluster, folder: str, status: int) -> None:
    made = cluster.ask("PUT", "/webhdfs/v1/user/alice/a-file?op=CREATE&data=true&overwrite=true", "text")
    assert made.status == 201
    cluster.ask("PUT", "/webhdfs/v1/user/bob/own?op=MKDIRS", token=cluster.tokens["bob"])
    reply = cluster.submit(in_workspace("nowhere", folder))
    assert reply.status == status, reply.text
    assert f"its workspace {folder}" in reply.json()["message"]


@pytest.mark.parametrize("folder", ["/alice/x/y", "relative/x", "/tmp/of-alice", "/${PAI_USER_NAME}/z"])
def test_outputs_are_stored_in_a_workspace_that_is_accepted(cluster: TeamCluster, folder: str) -> None:
    name = "in-" + "".join(c if c.isalnum() else "-" for c in folder)
    assert cluster.run(in_workspace(name, folder))["state"] == "SUCCEEDED"
    place = folder.replace("${PAI_USER_NAME}", "alice")
    place = place if place.startswith("/") else f"/user/alice/{place}"
    status = cluster.get(f"/webhdfs/v1{place}/output/file?op=GETFILESTATUS").json()["FileStatus"]
    assert (status["owner"], status["length"]) == ("alice", 5)


def test_check_of_a_job_file_names_the_workspace(cluster: TeamCluster) -> None:
    checked = cluster.ask("POST", "/api/v2/job-checks", in_workspace("checked", "/bob/x")).json()
    (problem,) = checked["problems"]
    assert problem["key"] == "parameters.work_directory" and "/bob/x" in problem["message"]
    assert (
        cluster.ask("POST", "/api/v2/job-checks", in_workspace("checked", "/alice/x")).json()["problems"]
        == []
    )
