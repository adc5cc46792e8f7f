"""Job files: read, changed, checked."""

import pytest

from openpaisdk.errors import PaiError, UsageError
from openpaisdk.jobs.jobfile import check_job, read_job_file, updated

GOOD = """\
protocolVersion: 2
name: j
type: job
prerequisites:
- {name: img, type: dockerimage, uri: busybox}
taskRoles:
  main:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: [echo hi]
"""


def test_a_good_file_is_read_and_passes(tmp_path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("\ufeff" + GOOD, encoding="utf-8")
    job = read_job_file(str(path))
    check_job(job, str(path))
    assert job["name"] == "j"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: [", "not valid YAML"),
        (b"- a\n", "not a job"),
        (b"", "not a job"),
        (b"\x00\xff\xfe", "not text"),
        (b"a: !!python/object:os.system x", "not valid YAML"),
    ],
)
def test_what_is_no_job_file_is_refused_with_its_name(tmp_path, content: bytes, says: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says) as caught:
        read_job_file(str(path))
    assert "job.yaml" in str(caught.value)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_job_file(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="is a folder"):
        read_job_file(str(tmp_path))


def test_updates_reach_deep_and_keep_types() -> None:
    job: dict[str, object] = {"name": "a", "taskRoles": {"main": {"commands": ["x"]}}}
    updated(
        job,
        [
            "name=b",
            "defaults:virtualCluster=test",
            "taskRoles:main:instances=3",
            "taskRoles:main:commands:0=a=b",
        ],
    )
    assert job == {
        "name": "b",
        "taskRoles": {"main": {"commands": ["a=b"], "instances": 3}},
        "defaults": {"virtualCluster": "test"},
    }


@pytest.mark.parametrize("change", ["name", "=x", ":=x", "name:deeper=x", "list:9=x"])
def test_an_update_without_a_place_is_refused(change: str) -> None:
    with pytest.raises(UsageError, match="--update"):
        updated({"name": "a", "list": [1]}, [change])


def test_a_job_the_cluster_would_refuse_is_refused_here() -> None:
    with pytest.raises(PaiError):
        check_job({"protocolVersion": 2, "name": "j", "type": "job"}, "job.yaml")


def test_a_job_of_version_1_is_recognised() -> None:
    with pytest.raises(UsageError, match="version 1"):
        check_job({"jobName": "j", "taskRoles": []}, "job.json")
