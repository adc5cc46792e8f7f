"""Job files: reading, updating, validation."""

import pytest

from openpaisdk.jobs.job_file import read_job_file
from paiprotocol.errors import PaiError, UsageError

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


@pytest.fixture
def job_file(tmp_path):
    def write(content: str | bytes) -> str:
        path = tmp_path / "job.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def test_valid_file_is_read(job_file) -> None:
    assert read_job_file(job_file("\ufeff" + GOOD), [])["name"] == "j"


@pytest.mark.parametrize(
    "content",
    [
        b"a: [",
        b"- a\n",
        b"",
        b"\x00\xff\xfe",
        b"a: !!python/object:os.system x",
        b"protocolVersion: 2\nname: j\n",
    ],
)
def test_invalid_file_error_has_the_file_name(job_file, content: bytes) -> None:
    with pytest.raises(PaiError) as caught:
        read_job_file(job_file(content), [])
    assert "job.yaml" in str(caught.value)


def test_missing_file_and_folder_have_different_errors(tmp_path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_job_file(str(tmp_path / "none"), [])
    with pytest.raises(UsageError, match="is a folder"):
        read_job_file(str(tmp_path), [])


def test_updates_change_nested_values(job_file) -> None:
    changes = [
        "name=b",
        "defaults:virtualCluster=test",
        "taskRoles:main:instances=3",
        "taskRoles:main:commands:0=a=b",
    ]
    job = read_job_file(job_file(GOOD), changes)
    assert job["name"] == "b" and job["defaults"] == {"virtualCluster": "test"}
    assert job["taskRoles"]["main"]["instances"] == 3 and job["taskRoles"]["main"]["commands"] == ["a=b"]


def test_updates_can_fix_an_invalid_file(job_file) -> None:
    content = GOOD.replace("name: j\n", "")
    with pytest.raises(PaiError, match="name"):
        read_job_file(job_file(content), [])
    assert read_job_file(job_file(content), ["name=given"])["name"] == "given"


@pytest.mark.parametrize("change", ["name", "=x", ":=x", "name:deeper=x", "nme=x"])
def test_update_without_a_path_is_rejected(job_file, change: str) -> None:
    with pytest.raises(PaiError):
        read_job_file(job_file(GOOD), [change])


def test_dollar_in_name_is_replaced(job_file) -> None:
    assert str(read_job_file(job_file(GOOD.replace("name: j", "name: j_$")), [])["name"]).startswith("j_")
    assert "$" not in str(read_job_file(job_file(GOOD), ["name=k_$"])["name"])


OLD = """{
  // as people wrote them
  "jobName": "old", "image": "busybox",
  "taskRoles": [{"name": "main", "command": "echo hi"}],
}"""


def test_version_1_job_stays_version_1(job_file) -> None:
    job = read_job_file(job_file(OLD), ["jobName=007", "taskRoles:0:gpuNumber=2", "retryCount=-1"])
    assert job["jobName"] == "007" and job["retryCount"] == -1 and "protocolVersion" not in job
    assert job["taskRoles"] == [{"name": "main", "command": "echo hi", "gpuNumber": 2}]


def test_updates_can_fix_a_version_1_job_with_comments(job_file) -> None:
    job = read_job_file(job_file(OLD.replace('"old"', '"old_$"')), [])
    assert str(job["jobName"]).startswith("old_") and "$" not in str(job["jobName"])
    assert read_job_file(job_file(OLD.replace('"jobName": "old", ', "")), ["jobName=x"])["jobName"] == "x"


@pytest.mark.parametrize("content", [GOOD, OLD])
def test_virtual_cluster_is_set_for_each_version(job_file, content: str) -> None:
    job = read_job_file(job_file(content), [], virtual_cluster="test")
    where = job if content == OLD else job["defaults"]
    assert where["virtualCluster"] == "test"


def test_unfixed_problem_keeps_its_line(job_file) -> None:
    with pytest.raises(PaiError, match=r"job\.yaml:9:5: taskRoles\.main\.comands"):
        read_job_file(
            job_file(GOOD.replace("commands", "comands").replace("    dockerImage: img\n", "")), ["name=x"]
        )
    with pytest.raises(PaiError, match=r"job\.yaml:10:5: taskRoles\.main\.comands: .*commands"):
        read_job_file(job_file(GOOD.replace("commands", "comands")), ["name=x"])


def test_warnings_are_reported(job_file) -> None:
    notices: list[str] = []
    read_job_file(job_file(GOOD.replace("echo hi", "echo <% $parameters.x %>")), [], notify=notices.append)
    assert len(notices) == 1 and "$parameters.x" in notices[0]
