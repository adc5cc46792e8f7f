"""`pai submit`: job files, through the real executables against a real cluster."""

import json

import pytest
import yaml

from support.cli_user import BIN

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


def test_task_of_a_file_finds_the_programs_of_the_submitting_shell(user) -> None:
    folder = user.project / "bin"
    folder.mkdir()
    (folder / "mine").write_text("#!/bin/sh\n")
    (folder / "mine").chmod(0o755)
    user.write(job__yaml=JOB.replace("[echo one,", '["command -v mine pai",'))
    # As in an environment that was never activated.
    path = f"{folder}:/usr/bin:/bin"
    done = user.run([str(BIN / "pai"), "submit", "--wait", "job.yaml"], env={"PATH": path})
    assert done.status == 0, done
    found = user.pai("logs", done.out.strip()).out
    assert found == f"{folder}/mine\n{BIN}/pai\nrole main\n"
    shown = user.run([str(BIN / "pai"), "submit", "--preview", "job.yaml"], env={"PATH": path})
    sent = user.pai("job-status", done.out.strip(), "config").out
    environment = yaml.safe_load(sent)["extras"]["openpaisdk"]["environment"]
    assert yaml.safe_load(shown.out)["extras"]["openpaisdk"]["environment"] == environment
    assert environment["PATH"] == f"{path}:{BIN}"


def test_variables_of_a_file_take_precedence(user) -> None:
    job = JOB + "extras: {openpaisdk: {environment: {COLOUR: blue, LANG: C}}}\n"
    done = user.pai("submit", "--preview", "-", stdin=job)
    environment = yaml.safe_load(done.out)["extras"]["openpaisdk"]["environment"]
    assert (environment["COLOUR"], environment["LANG"]) == ("blue", "C")
    assert str(BIN) in environment["PATH"].split(":")


def test_preview_of_a_file_needs_no_selected_cluster(new_user) -> None:
    user = new_user
    (user.home / ".openpai").mkdir(parents=True, exist_ok=True)
    (user.home / ".openpai/clusters.yaml").write_text(
        "".join(f"- {{cluster_alias: {name}, pai_uri: 'http://{name}.example', user: me}}\n" for name in "ab")
    )
    done = user.pai("submit", "--preview", "-", stdin=JOB)
    assert done.status == 0 and "extras" not in yaml.safe_load(done.out), done
    done = user.pai("submit", "--preview", "-a", "absent", "-", stdin=JOB)
    assert done.status == 2 and "no cluster called 'absent'" in done.err, done
    assert "none is selected" in user.pai("submit", "-", stdin=JOB).err


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


SHORT = """\
name: six_$
command: cat data/word.txt && cp data/word.txt $PAI_OUTPUT_DIR
resources: {cpu: 1, mem: 64m}
sources: [data]
env: {COLOUR: blue}
timeout: 1h
"""


def test_short_file_is_previewed_as_version_2(user) -> None:
    user.write(job__yaml=SHORT)
    (user.project / "data").mkdir()
    (user.project / "data/word.txt").write_text("from the folder\n")
    done = user.pai("submit", "--preview", "-u", "resources:cpu=2", "--vc", "default", "job.yaml")
    job = yaml.safe_load(done.out)
    assert done.status == 0 and job["protocolVersion"] == 2, done
    role = job["taskRoles"]["main"]
    assert role["resourcePerInstance"] == {"cpu": 2, "gpu": 0, "memoryMB": 64}
    assert job["defaults"]["virtualCluster"] == "default"
    assert job["extras"]["openpaisdk"]["timeLimit"] == 3600 and job["extras"]["openpaisdk"]["sources"]


def test_paths_of_a_short_file_are_relative_to_the_file(user) -> None:
    folder = user.project / "inside"
    (folder / "data").mkdir(parents=True)
    (folder / "job.yaml").write_text(SHORT)
    (folder / "data/word.txt").write_text("beside the file\n")
    done = user.pai("submit", "--follow", "--fetch", "out", "inside/job.yaml")
    assert done.status == 0 and done.out == "beside the file\n", done
    assert (user.project / "out/word.txt").read_text() == "beside the file\n"
    (folder / "job.json").write_text('{"command": "ls", "resources": {"mem": "64m"}}')
    done = user.pai("submit", "-f", "inside/job.json")
    assert done.out == "data\njob.json\njob.yaml\n", done


def test_short_job_on_standard_input_and_from_python(user) -> None:
    done = user.pai(
        "submit",
        "-f",
        "-",
        stdin="command: echo $COLOUR\nenv: [COLOUR]\nsources: []\n",
        env={"COLOUR": "red"},
    )
    assert done.status == 0 and done.out == "red\n", done
    user.write(job__yaml="command: cat job.yaml\nresources: {mem: 64m}\n", run__py=PROGRAM)
    done = user.run(["python", "run.py"])
    assert done.out.count("SUCCEEDED") == 3 and done.out.count("command: cat job.yaml") == 3, done


PROGRAM = """\
from openpaisdk import Cluster, Job
for job in (Job().load("job.yaml"), Job.of("job.yaml"), "job.yaml"):
    job = Cluster().submit(job)
    print(job.wait(), job.logs())
"""


def test_unknown_key_of_a_short_file_is_named_with_line_and_suggestion(user) -> None:
    user.write(job__yaml="command: true\nimge: x\ngpu: 1\n")
    for command in ("submit", "check-job"):
        done = user.pai(command, "job.yaml")
        said = done.out + done.err
        assert done.status == 1 and 'job.yaml:2:1: imge: unknown key; did you mean "image"?' in said, done
        assert 'job.yaml:3:1: gpu: unknown key; put it under "resources"' in said, done


def test_short_file_is_checked_and_has_a_schema(user) -> None:
    user.write(job__yaml=SHORT)
    assert user.pai("check-job", "job.yaml").out == "job.yaml: valid (short form)\n"
    assert json.loads(user.pai("check-job", "-o", "json", "job.yaml").out)[0]["version"] == "short"
    assert "command" in json.loads(user.pai("job-schema", "short").out)["properties"]


def test_generated_name_of_a_short_job_and_name_conflict(user) -> None:
    user.write(job__yaml="command: 'true'\nsources: []\nresources: {mem: 64m}\n")
    assert user.pai("submit", "--wait", "job.yaml").out.startswith("true_")
    user.write(job__yaml="name: fixed_name\ncommand: 'true'\nsources: []\n")
    assert user.pai("submit", "job.yaml").status == 0
    done = user.pai("submit", "job.yaml")
    assert done.status == 1 and "already has a job called fixed_name" in done.err, done
