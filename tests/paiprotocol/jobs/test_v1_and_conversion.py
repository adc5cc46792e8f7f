from __future__ import annotations

import json
import subprocess

import pytest

from paiprotocol.errors import ProtocolError
from paiprotocol.jobs import (
    check_job,
    convert_v1,
    job_version,
    read_any_job,
    read_job,
    read_job_v1,
    task_script,
)

EVERYTHING = """\
// A job as people have it.
{
  "jobName": "every.field~1",          // a name
  "image": "registry.example.org/image", /* with
     an image */
  "authFile": "$PAI_DEFAULT_FS_URI/auth",
  "dataDir": "$PAI_DEFAULT_FS_URI/data/$PAI_USER_NAME",
  "outputDir": "$PAI_DEFAULT_FS_URI/out/$PAI_JOB_NAME/$PAI_USERNAME/$PAI_OTHER",
  "codedir": "hdfs://host:9000/code",
  "virtualCluster": "",
  "gpuType": "K80",
  "retryCount": -1,
  "killAllOnCompletedTaskNumber": 1,
  "taskRoles": [
    {
      "name": "worker.a",
      "taskNumber": 2,
      "cpuNumber": 4,
      "memoryMB": 8192,
      "shmMB": 128,
      "gpuNumber": 1,
      "portList": [{"label": "web", "beginAt": 8080, "portNumber": 2}, {"label": "x.y"},],
      "command": "echo \\"http://not-a-comment /* nor this */\\" // yes it's shell",
      "minFailedTaskCount": null,
      "minSucceededTaskCount": 1,
    },
    {"name": "ps", "command": "sleep 1"}
  ],
  "jobEnvs": {"isDebug": true, "N": 5, "QUOTED": "it's $HOME <% $parameters.x %>"},
  "extras": {"a.b": [1]},
}
These are my notes. { They follow the job.
"""


def test_all_fields_with_comments_and_trailing_commas():
    job = read_job_v1(EVERYTHING, file="job.json")
    assert (job.job_name, job.virtual_cluster, job.gpu_type, job.retry_count) == (
        "every.field~1",
        "default",
        "K80",
        -1,
    )
    assert job.code_dir == "hdfs://host:9000/code"
    worker, ps = job.task_roles
    assert (worker.task_number, worker.cpu_number, worker.memory_mb, worker.shm_mb) == (2, 4, 8192, 128)
    assert worker.ports == (("web", 8080, 2), ("x.y", 0, 1))
    assert worker.command == 'echo "http://not-a-comment /* nor this */" // yes it\'s shell'
    assert (worker.min_failed, worker.min_succeeded) == (None, 1)
    assert (ps.task_number, ps.cpu_number, ps.memory_mb, ps.shm_mb, ps.gpu_number) == (1, 1, 100, 64, 0)
    assert (ps.min_failed, ps.min_succeeded) == (1, None)
    warnings = {str(warning) for warning in job.warnings}
    assert "job.json:9:3: codedir: should be codeDir" in warnings
    assert any("killAllOnCompletedTaskNumber" in text for text in warnings)
    assert "job.json:32:1: the text after the job is ignored" in warnings


def test_path_variables_are_replaced():
    job = read_job_v1(EVERYTHING)
    where = {"user": "ada", "default_fs_uri": "hdfs://h:9000"}
    assert job.path("dataDir", **where) == "hdfs://h:9000/data/ada"
    assert job.path("outputDir", **where) == "hdfs://h:9000/out/every.field~1/ada/$PAI_OTHER"
    assert job.path("authFile", **where) == "hdfs://h:9000/auth"
    bare = read_job_v1({"jobName": "j", "image": "i", "taskRoles": [{"name": "r", "command": "c"}]})
    assert bare.path("outputDir", **where) == "hdfs://h:9000/Output/ada/j"
    assert bare.path("dataDir", **where) == ""


def test_conversion_keeps_everything_or_adds_a_note():
    conversion = convert_v1(
        EVERYTHING, user="ada", default_fs_uri="hdfs://h:9000", auth="reg.io\nada\nhunter2\n"
    )
    job = conversion.job
    assert job.name == "every_field_1"
    assert job.job_retry_count == -1
    assert [role.name for role in job.task_roles] == ["worker_a", "ps"]
    worker, ps = job.task_roles
    assert (worker.instances, worker.min_failed, worker.min_succeeded, worker.shm_mb) == (2, -1, 1, 128)
    assert (ps.min_failed, ps.min_succeeded) == (1, -1)
    assert dict(worker.resources.ports) == {"ssh": 1, "http": 1, "web": 2, "x_y": 1}
    assert job.prerequisite("data", "default").uri == ("hdfs://h:9000/data/ada",)
    assert job.prerequisite("dockerimage", "default").auth["password"] == "<% $secrets.registry %>"
    assert dict(job.secrets) == {"registry": "hunter2"}
    assert job.extras == {"a.b": [1]}
    assert "hunter2" not in repr(conversion)
    notes = " ".join(map(str, conversion.warnings))
    for lost in ("every.field~1", "worker.a", "8080", "gpuType", "codedir", "killAll"):
        assert lost in notes
    assert read_job(conversion.data, stored=True) == job


def test_converted_job_exports_variables_unchanged():
    job = convert_v1(EVERYTHING, user="ada", default_fs_uri="hdfs://h:9000").job
    script = (
        task_script("ps", job) + '\nprintf "%s|" "$PAI_DATA_DIR" "$PAI_OUTPUT_DIR" "$isDebug" "$N" "$QUOTED"'
    )
    script = script.replace("sleep 1", "true")
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("|")[:-1] == [
        "hdfs://h:9000/data/ada",
        "hdfs://h:9000/out/every.field~1/ada/$PAI_OTHER",
        "true",
        "5",
        "it's $HOME <% $parameters.x %>",
    ]


def test_without_user_the_shell_expands_path_variables():
    job = convert_v1({**SMALL, "dataDir": "$PAI_DEFAULT_FS_URI/`x`/$HOME"}).job
    script = "export PAI_DEFAULT_FS_URI=fs\n" + task_script("main", job) + '\necho "$PAI_DATA_DIR"'
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    assert done.stdout == "fs/`x`/$HOME\n"


SMALL = {"jobName": "small", "image": "ubuntu", "taskRoles": [{"name": "main", "command": "true"}]}


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        ({"jobName": "a b"}, "jobName", "letters, digits"),
        ({"image": 5}, "image", "put it in quotes"),
        ({"imag": "x"}, "imag", "unknown key"),
        ({"retryCount": -3}, "retryCount", "at least -2"),
        ({"taskRoles": []}, "taskRoles", "not empty"),
        ({"taskRoles": [{"name": "a"}]}, "taskRoles[0]", '"command" is missing'),
        (
            {"taskRoles": [{"name": "a", "command": "x", "gpu": 1}]},
            "taskRoles[0].gpu",
            'did you mean "gpuNumber"',
        ),
        (
            {"taskRoles": [{"name": "a", "command": "x"}, {"name": "a", "command": "x"}]},
            "taskRoles[1].name",
            "already a role",
        ),
        ({"taskRoles": [{"name": "a", "command": "x", "minFailedTaskCount": 2}]}, "", "more than taskNumber"),
        ({"taskRoles": [{"name": "a", "command": "x", "minSucceededTaskCount": 0}]}, "", "at least 1"),
        ({"taskRoles": [{"name": "a", "command": "x", "shmMB": 200}]}, "", "more than memoryMB"),
        ({"jobEnvs": {"A": [1]}}, "jobEnvs.A", "not a list"),
    ],
)
def test_each_version_1_rule_reports_the_problem(change, key, says):
    with pytest.raises(ProtocolError) as caught:
        read_job_v1({**SMALL, **change})
    found = [problem for problem in caught.value.problems if says in str(problem)]
    assert len(found) == 1
    assert not key or found[0].key == key


def test_invalid_auth_file_is_rejected_without_showing_it():
    with pytest.raises(ProtocolError) as caught:
        convert_v1(SMALL, auth="registry\nhunter2")
    assert "three lines" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_version_detection():
    assert job_version(SMALL) == 1
    assert job_version({"protocolVersion": 2, "jobName": "odd"}) == 2
    assert job_version([]) == 2
    assert type(read_any_job(EVERYTHING)).__name__ == "JobV1"
    assert type(read_any_job("jobName: x\nimage: y\ntaskRoles: [{name: a, command: b}]")).__name__ == "JobV1"
    v2 = convert_v1(SMALL).data
    assert type(read_any_job(json.dumps(v2))).__name__ == "JobSpec"
    assert type(read_any_job(json.dumps(SMALL).encode())).__name__ == "JobV1"
    assert type(read_any_job(v2)).__name__ == "JobSpec"


def test_check_job_lists_all_problems_and_does_not_raise():
    assert check_job(json.dumps(SMALL)) == ()
    assert [problem.level for problem in check_job(EVERYTHING)] == ["note"] * 3
    assert len(check_job("{")) == 1
    assert [p.line for p in check_job("jobName: 1\nimage: 2\ntaskRoles: 3\n", file="x")] == [1, 2, 3]


def test_equal_legal_names_stay_distinct():
    roles = [{"name": name, "command": "x"} for name in ("a.b", "a_b", "a~b", "1")]
    job = convert_v1({**SMALL, "taskRoles": roles}).job
    assert [role.name for role in job.task_roles] == ["a_b", "a_b_", "a_b__", "_1"]
