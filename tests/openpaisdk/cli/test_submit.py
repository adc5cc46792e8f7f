"""`pai submit`: job files, through the real executables against a real cluster."""

import json

import pytest
import yaml

JOB = """\
protocolVersion: 2
name: filejob_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  main:
    dockerImage: img
    completion: {minSucceededInstances: -1}
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: [echo one, "echo role $PAI_CURRENT_TASK_ROLE_NAME"]
  second:
    dockerImage: img
    completion: {minSucceededInstances: -1}
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: ["echo I am $PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"]
"""


def test_submit_job_file_and_read_each_task(user) -> None:
    user.write(job__yaml=JOB)
    done = user.pai("submit", "--wait", "-o", "json", "job.yaml")
    assert done.status == 0, done
    name = json.loads(done.out)["jobName"]
    assert user.pai("logs", name).out == "one\nrole main\n"
    assert user.pai("logs", "--role", "second", "--index", "0", name).out == "I am 0\n"
    assert "no task role" in user.pai("logs", "--role", "third", name).err
    assert user.pai("logs", "--tail", "1", name).out == "role main\n"


def test_submit_with_update_and_from_stdin(user) -> None:
    done = user.pai(
        "submit", "--preview", "-u", "name=again", "-u", "taskRoles:main:instances=2", "-", stdin=JOB
    )
    job = yaml.safe_load(done.out)
    assert job["name"] == "again" and job["taskRoles"]["main"]["instances"] == 2


@pytest.mark.parametrize("content", ["a: [", "just words", "name: x\n", ""])
def test_invalid_job_file_is_reported_with_line(user, content: str) -> None:
    user.write(job__yaml=content)
    done = user.pai("submit", "job.yaml")
    assert done.status == 1 and "job.yaml" in done.err and "Traceback" not in done.err, done


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("job.sh", "#!/bin/bash\n#SBATCH -c 2\necho hello\n", "bash job.sh"),
        ("train", "#!/usr/bin/env python3\nprint(1)\n", "python3 train"),
        ("train.py", "print(1)\n", "python train.py"),
    ],
)
def test_script_is_not_taken_for_a_job_file(user, name: str, text: str, command: str) -> None:
    (user.project / name).write_text(text)
    done = user.pai("submit", name)
    assert done.status == 2
    assert (
        done.err
        == f"pai: {name} is a script, not a job file.\n     Run it as a job with: pai sub -- {command}\n"
    )
