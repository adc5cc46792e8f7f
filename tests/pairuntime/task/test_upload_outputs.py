"""What a task leaves in its folder for results, or names, lies on the storage when the job is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairuntime.task import upload_outputs
from pairuntime.task.webhdfs import Storage, WebHdfsError
from support.server_fixture import Cluster, job, role


def content(cluster: Cluster, path: str) -> bytes | None:
    reply = cluster.get(f"/webhdfs/v1{path}?op=OPEN&data=true")
    if reply.status == 307:
        reply = cluster.get("/webhdfs/" + reply.headers["location"].partition("/webhdfs/")[2])
    return reply.body if reply.status == 200 else None


def host(what: dict[str, object]) -> dict[str, object]:
    what["prerequisites"] = [{"name": "image", "type": "dockerimage", "uri": "host"}]
    return what


def kept(cluster: Cluster, name: str, file: str) -> bytes | None:
    return content(cluster, f"/user/{cluster.user}/jobs/{name}/output/{file}")


def test_outputs_are_uploaded_before_the_job_succeeds(cluster: Cluster) -> None:
    commands = ('mkdir "$PAI_OUTPUT_DIR/deep"', 'printf model > "$PAI_OUTPUT_DIR/deep/model.bin"')
    assert cluster.run(host(job("kept", *commands)))["state"] == "SUCCEEDED"
    assert kept(cluster, "kept", "deep/model.bin") == b"model"


def test_outputs_of_a_failed_job_are_uploaded(cluster: Cluster) -> None:
    what = host(job("fails", 'printf half > "$PAI_OUTPUT_DIR/part"', "exit 3"))
    assert cluster.run(what)["state"] == "FAILED"
    assert kept(cluster, "fails", "part") == b"half"


def test_files_matching_patterns_are_uploaded_by_their_path(cluster: Cluster) -> None:
    what = job("named", "mkdir -p runs/a", "echo 1 > runs/a/log.txt", "echo 2 > other.txt")
    what["extras"] = {"openpaisdk": {"outputs": ["runs/**/*.txt", "nothing.*"]}}
    assert cluster.run(host(what))["state"] == "SUCCEEDED"
    assert kept(cluster, "named", "runs/a/log.txt") == b"1\n"
    assert kept(cluster, "named", "other.txt") is None
    assert b"No file matches nothing.*" in cluster.log_of("named")


def test_each_task_has_its_own_output_folder(cluster: Cluster) -> None:
    what = host(job("several", 'echo $PAI_TASK_INDEX > "$PAI_OUTPUT_DIR/index"', instances=2))
    what["taskRoles"]["ps"] = role('echo ps > "$PAI_OUTPUT_DIR/index"')  # type: ignore[index]
    assert cluster.run(what)["state"] == "SUCCEEDED"
    found = [kept(cluster, "several", f"{who}/index") for who in ("main-0", "main-1", "ps-0")]
    assert found == [b"0\n", b"1\n", b"ps\n"]


def test_workspace_of_the_job_is_used(cluster: Cluster) -> None:
    what = host(job("placed", 'echo x > "$PAI_OUTPUT_DIR/x"'))
    what["parameters"] = {"work_directory": f"/user/{cluster.user}/mine/jobs/placed"}
    assert cluster.run(what)["state"] == "SUCCEEDED"
    assert content(cluster, f"/user/{cluster.user}/mine/jobs/placed/output/x") == b"x\n"


def test_failed_upload_fails_the_job_with_the_reason(cluster: Cluster) -> None:
    # After its submission, which would refuse it.
    in_the_way = ("echo f > f", "hdfs dfs -mkdir -p blocked", "hdfs dfs -put f blocked/jobs")
    what = host(job("nowhere", *in_the_way, 'echo x > "$PAI_OUTPUT_DIR/x"'))
    what["parameters"] = {"work_directory": "blocked/jobs/nowhere"}
    assert cluster.run(what)["state"] == "FAILED"
    said = b"The outputs could not be uploaded to"
    assert said in cluster.log_of("nowhere")


def test_links_out_of_the_working_folder_are_not_followed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    folder = work / ".pai" / "output"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("not yours")
    (work / "data").write_text("mine")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "in").symlink_to(work / "data")
    (work / "away").symlink_to(tmp_path)
    found, complaints = upload_outputs.collect(str(folder), str(work), ["away/secret", "../secret", "/etc/*"])
    assert list(found) == ["in"]
    # The messages name the task's own links and patterns, and nothing outside.
    assert complaints == [
        "No file matches away/secret: nothing was uploaded for it.",
        "No file matches ../secret: nothing was uploaded for it.",
        "No file matches /etc/*: nothing was uploaded for it.",
        "out is a link out of the working folder, or broken, and was not uploaded.",
    ]


def test_names_that_are_not_utf8_are_reported_and_the_others_uploaded(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    (folder / "d\udcfe").mkdir(parents=True)
    for name in ("good", "f\udcff", "d\udcfe/inner"):
        (folder / name).write_text("x")
    found, warnings = upload_outputs.collect(str(folder), str(tmp_path), [])
    assert list(found) == ["good"]
    assert sorted(warnings) == [
        "The name d\\udcfe/inner is not UTF-8: the file was not uploaded.",
        "The name f\\udcff is not UTF-8: the file was not uploaded.",
    ]
    with pytest.raises(WebHdfsError, match="is not UTF-8"):
        Storage("http://127.0.0.1:9").put(str(folder / "good"), "/user/f\udcff")


def test_output_folder_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".pai").mkdir(parents=True)
    (tmp_path / "secret").write_text("not yours")
    (work / ".pai" / "output").symlink_to(tmp_path)
    assert upload_outputs.collect(str(work / ".pai" / "output"), str(work), []) == ({}, [])


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("a.txt", "a.txt"),
        ("*.txt", "a.txt"),
        ("runs", "runs/a/b.txt"),
        ("runs/*/b.txt", "runs/a/b.txt"),
        ("**/*.txt", "a.txt"),
        ("runs/**/*.txt", "runs/a.txt"),
        ("runs/**/*.txt", "runs/a/b/c.txt"),
        ("./runs/", "runs/a.txt"),
        ("**", "any/thing"),
    ],
)
def test_pattern_matches_files_and_folders(pattern: str, name: str) -> None:
    assert upload_outputs.matches(pattern, name)
    assert not upload_outputs.matches("other*", name)


def test_missing_output_folder_has_no_outputs(tmp_path: Path) -> None:
    assert upload_outputs.collect(str(tmp_path / "not there"), str(tmp_path), []) == ({}, [])
