"""The files of a job by the job's name, wherever its workspace is: `pai://CLUSTER/jobs/JOB/...`."""

import json
import sys
from pathlib import Path

import pytest

from support.cli_user import CliUser
from support.server_fixture import job
from support.team_cluster import TeamCluster

OUTPUT = "echo {text} > $PAI_OUTPUT_DIR/model"


@pytest.fixture(name="alice")
def alice_fixture(team: TeamCluster, tmp_path: Path) -> CliUser:
    return person_of(team, "alice", tmp_path)


def person_of(team: TeamCluster, name: str, folder: Path) -> CliUser:
    person = CliUser(folder / name)
    (person.home / ".openpai").mkdir()
    url = "http://{}:{}".format(*team.address)
    entry = {
        "cluster_alias": "team",
        "pai_uri": url,
        "user": name,
        "token": team.tokens[name],
        "info": {"containers": False},
    }
    (person.home / ".openpai/clusters.yaml").write_text(json.dumps([entry]))
    return person


def run(team: TeamCluster, name: str, work_directory: str = "", **more: object) -> None:
    parameters = {"work_directory": work_directory} if work_directory else {}
    spec = job(name, OUTPUT.format(text=name), parameters=parameters, **more)  # type: ignore[arg-type]
    assert team.run(spec)["state"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("name", "work_directory"),
    [
        ("at_home", ""),
        ("with_workspace", "/alice/vision/jobs/with_workspace"),
        ("with_user_name", "/${PAI_USER_NAME}/vision/jobs/with_user_name"),
        ("relative", "vision/jobs/relative"),
    ],
)
def test_outputs_are_found_wherever_the_workspace_is(
    team: TeamCluster, alice: CliUser, name: str, work_directory: str
) -> None:
    run(team, name, work_directory)
    address = f"pai://team/jobs/{name}"
    assert alice.pai("listdir", address).out.split() == ["output/"]
    assert alice.pai("copy", f"{address}/output/model", "-").out.strip() == name
    assert alice.pai("copy", f"{address}/output", "back").status == 0
    assert (alice.project / "back/model").read_text().strip() == name
    assert "address:   pai://team/home/" in alice.pai("getinfo", f"{address}/output/model").out
    assert alice.pai("job-outputs", name, "peek", "model").out.strip() == name
    program = f"import fsspec; print(fsspec.open('{address}/output/model').open().read().decode())"
    assert alice.run([sys.executable, "-c", program]).out.strip() == name


def test_outputs_do_not_depend_on_the_selected_storage(
    team: TeamCluster, alice: CliUser, tmp_path: Path
) -> None:
    run(team, "elsewhere")
    file = alice.home / ".openpai/clusters.yaml"
    entries = json.loads(file.read_text())
    entries[0]["storage_name"] = "gone"
    file.write_text(json.dumps(entries))
    assert alice.pai("copy", "pai://team/jobs/elsewhere/output/model", "-").out.strip() == "elsewhere"
    assert alice.pai("job-outputs", "elsewhere").out.split()[-2:] == ["model", "10"]


def test_several_tasks_have_a_folder_each(team: TeamCluster, alice: CliUser) -> None:
    run(team, "several", instances=2)
    found = alice.pai("listdir", "-R", "pai://team/jobs/several/output").out.split()
    assert found == ["main-0/", "main-0/model", "main-1/", "main-1/model"]


def test_jobs_are_listed_and_a_job_must_be_named(team: TeamCluster, alice: CliUser) -> None:
    run(team, "listed")
    assert "listed/" in alice.pai("listdir", "pai://team/jobs/").out.split()
    listed = json.loads(alice.pai("listdir", "-o", "json", "pai://team/jobs").out)
    assert {"name": "listed", "path": "pai://team/jobs/listed", "type": "directory"} in listed
    program = "import fsspec; print(fsspec.filesystem('pai').ls('pai://team/jobs', detail=False))"
    assert "'team/jobs/listed'" in alice.run([sys.executable, "-c", program]).out
    done = alice.pai("copy", "pai://team/jobs/", "all")
    assert done.status == 2 and "name one of them" in done.err, done


def test_patterns_find_the_outputs_of_several_jobs(team: TeamCluster, alice: CliUser) -> None:
    run(team, "lr_1")
    run(team, "lr_2")
    program = "import fsspec; print(fsspec.filesystem('pai').glob('pai://team/jobs/lr_*/output/model'))"
    assert eval(alice.run([sys.executable, "-c", program]).out) == [
        "team/jobs/lr_1/output/model",
        "team/jobs/lr_2/output/model",
    ]


def test_missing_jobs_and_missing_files_are_named(team: TeamCluster, alice: CliUser) -> None:
    run(team, "exists")
    done = alice.pai("listdir", "pai://team/jobs/exist/output")
    assert done.status == 1 and "There is no job 'exist'" in done.err and "mean exists" in done.err, done
    done = alice.pai("copy", "pai://team/jobs/exists/output/weights", ".")
    assert done.status == 2 and "the job exists has left no weights" in done.err, done
    assert team.run(job("silent", "true"))["state"] == "SUCCEEDED"
    done = alice.pai("listdir", "pai://team/jobs/silent/output")
    assert done.status == 2 and "the job silent has left no files" in done.err, done
    assert "pai job-outputs silent" in done.err and "Traceback" not in done.err, done
    program = "import fsspec; fsspec.open('pai://team/jobs/exist/output/model').open()"
    assert "FileNotFoundError: There is no job 'exist'" in alice.run([sys.executable, "-c", program]).err


def test_jobs_of_other_users_are_named_with_their_owner(
    team: TeamCluster, alice: CliUser, tmp_path: Path
) -> None:
    run(team, "mine")
    bob = person_of(team, "bob", tmp_path)
    done = bob.pai("copy", "pai://team/jobs/alice~mine/output/model", "-")
    assert done.status == 1 and "permission denied" in done.err, done
    assert alice.pai("copy", "pai://team/jobs/alice~mine/output/model", "-").out.strip() == "mine"
    assert alice.pai("job-outputs", "alice~mine").out.split()[-2:] == ["model", "5"]


def test_address_is_for_reading(team: TeamCluster, alice: CliUser) -> None:
    run(team, "kept")
    alice.write(mine="mine")
    address = "pai://team/jobs/kept"
    for words in (
        ["copy", "mine", f"{address}/output/mine"],
        ["makedir", f"{address}/more"],
        ["remove", "-y", address],
        ["sync", ".", f"{address}/output"],
    ):
        done = alice.pai(*words)
        assert done.status == 1 and "for reading only" in done.err, done
        assert "pai://team/home/user/alice/jobs/kept" in done.err, done
    program = f"import fsspec; fsspec.open('{address}/output/mine', 'wb').open()"
    assert "PermissionError" in alice.run([sys.executable, "-c", program]).err
    assert alice.pai("listdir", f"{address}/output").out.split() == ["model"]


def test_names_are_completed(team: TeamCluster, alice: CliUser) -> None:
    run(team, "finished_one")
    found = alice.pai("__complete", "copy", "pai://team/j").out.split()
    assert found == ["pai://team/jobs/"], found
    found = alice.pai("__complete", "copy", "pai://team/jobs/finished").out.split()
    assert found == ["pai://team/jobs/finished_one/"], found


def test_sources_are_in_it_too(team: TeamCluster, alice: CliUser) -> None:
    alice.write(train__py="print(1)")
    words = ["--cpu", "1", "--mem", "64m", "--sources", "train.py", "-j", "with_sources", "--wait", "true"]
    assert alice.pai("sub", *words).status == 0
    assert alice.pai("listdir", "pai://team/jobs/with_sources/source").out.split() == ["train.py"]
