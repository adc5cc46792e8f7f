"""Inside a task `pai`, `pai://here`, `hdfs://` and the binding use the task's own cluster."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from support.cli_user import BIN, CliUser
from support.server_fixture import job
from support.team_cluster import TeamCluster, module_team  # noqa: F401

MASK = "******"
"""What a log has in place of a secret."""
EMPTY_HOME = 'export HOME="$PWD/empty"; mkdir -p "$HOME" project; cd project; '
Task = Callable[..., str]
"""Runs commands as a job of this name; returns its log."""


@pytest.fixture(name="task")
def task_fixture(team: TeamCluster) -> Task:
    """Runs shell commands in a task of a job of alice, with an empty HOME; returns what they print."""

    def run(name: str, *commands: str) -> str:
        lines = [f'export PATH="{BIN}:$PATH"; {EMPTY_HOME}', *commands]
        state = team.run(job(name, *lines, memory_mb=512))["state"]
        log = team.log_of(name).decode()
        assert state == "SUCCEEDED", (state, log)
        return log

    return run


@pytest.fixture(name="alice")
def alice_fixture(team: TeamCluster, tmp_path: Path) -> Iterator[CliUser]:
    """Alice outside, with the team's cluster as `team` and `local` selected."""
    person = CliUser(tmp_path / "alice")
    (person.home / ".openpai").mkdir()
    entry = {"cluster_alias": "team", "pai_uri": url(team), "user": "alice", "token": team.tokens["alice"]}
    (person.home / ".openpai/clusters.yaml").write_text(json.dumps([entry]))
    yield person
    person.stop_cluster()


def url(team: TeamCluster) -> str:
    return "http://{}:{}".format(*team.address)


def test_commands_use_the_tasks_own_cluster(task: Task, alice: CliUser) -> None:
    log = task(
        "own_cluster",
        "pai list-jobs -o json | grep -o own_cluster | head -1",
        "pai list-storages",
        "ls -A $HOME",
    )
    assert "own_cluster" in log and "home" in log
    assert ".openpai" not in log, "a cluster was started, or a file was written"


@pytest.mark.parametrize(
    ("name", "where"),
    [("by_hdfs", "$PAI_DEFAULT_FS_URI"), ("by_number", "pai://here/0"), ("by_name", "pai://here/home")],
)
def test_files_go_to_the_tasks_own_cluster(task: Task, alice: CliUser, name: str, where: str) -> None:
    # A HOME with `local` selected: the embedded cluster must neither be used nor started.
    log = task(
        name,
        "mkdir -p $HOME/.openpai && echo 'cluster-alias: local' > $HOME/.openpai/defaults.yaml",
        f"echo {name} > x",
        f"pai copy x {where}/user/$PAI_USER_NAME/{name}",
        f"pai copy {where}/user/$PAI_USER_NAME/{name} -",
        # The parsed file is cached when it is two seconds old.
        "ls --ignore=cache $HOME/.openpai",
    )
    assert log.splitlines()[-2:] == [name, "defaults.yaml"], log
    assert alice.pai("copy", f"pai://team/0/user/alice/{name}", "-").out.strip() == name


def test_binding_and_fsspec_use_the_tasks_own_cluster(task: Task, alice: CliUser) -> None:
    program = """
import os, fsspec
from openpaisdk import Cluster, Job
cluster = Cluster()
print(cluster.alias, cluster.user, os.environ["PAI_USER_TOKEN"] in repr(cluster))
child = Job("child").one_liner("echo from the child", cpu=1, mem="32m").submit()
print(child.wait(), child.logs().strip())
with fsspec.open("pai://here/0/user/alice/by_fsspec", "wb") as f:
    f.write(b"written")
print(cluster.storage.exists("/user/alice/by_fsspec"))
print(len(fsspec.filesystem("pai").glob("pai://here/0/user/alice/by_fs*")))
"""
    log = task("binds", f"{sys.executable} -c '{program}'")
    assert log.splitlines() == ["here alice False", "SUCCEEDED from the child", "True", "1"]
    assert alice.pai("copy", "pai://team/0/user/alice/by_fsspec", "-").out == "written"
    assert json.loads(alice.pai("job-status", "-a", "team", "child", "-o", "json").out)["name"] == "child"


def test_commands_submit_to_the_tasks_own_cluster(task: Task) -> None:
    log = task(
        "submits",
        "pai sub --no-sources --cpu 1 --mem 32m --preview -j below 'echo below'",
        "pai sub --no-sources --cpu 1 --mem 32m --follow -j below 'echo below'",
        "pai logs below",
    )
    assert log.count("\nbelow\n") == 2, log
    assert MASK not in log, "the token was printed, and masked in the log"


def test_outputs_of_a_task_do_not_travel_with_the_jobs_it_submits(task: Task, team: TeamCluster) -> None:
    log = task(
        "above",
        'cd "$PAI_WORK_DIR"; echo kept > $PAI_OUTPUT_DIR/of_above; echo 1 > source.txt',
        "pai sub --sources . --cpu 1 --mem 32m --wait -j heir 'ls; ls $PAI_OUTPUT_DIR | wc -l'",
    )
    assert team.log_of("heir").decode().split() == ["empty", "project", "source.txt", "0"], log


def test_embedded_cluster_is_never_started_inside_a_task(task: Task) -> None:
    log = task(
        "starts_none",
        "pai list-jobs -a local || echo status $?",
        "pai start-cluster || echo status $?",
        "ls -A $HOME",
    )
    assert log.count("not started inside a task") == 2 and log.count("status 1") == 2, log
    assert not log.splitlines()[-1].startswith(".openpai"), log


def test_alias_option_still_names_another_cluster(task: Task, team: TeamCluster, alice: CliUser) -> None:
    entry = {"cluster_alias": "bobs", "pai_uri": url(team), "user": "bob", "token": team.tokens["bob"]}
    log = task(
        "other_alias",
        f"mkdir -p $HOME/.openpai && echo '[{json.dumps(entry)}]' > $HOME/.openpai/clusters.yaml",
        "chmod 600 $HOME/.openpai/clusters.yaml",
        "pai list-jobs -a bobs -o json",
        "pai list-jobs -o json | grep -o other_alias | head -1",
    )
    assert log.split() == ["[]", "other_alias"]


def test_list_clusters_and_doctor_name_the_tasks_cluster(task: Task, team: TeamCluster) -> None:
    log = task("shows", "pai list-clusters", "pai list-clusters -o json", "pai doctor")
    assert f"*  here   {url(team)}" in log and "here is the cluster of this task" in log
    assert f"PAI_REST_SERVER_URI is {url(team)}" in log and "is not started inside a task" in log
    assert MASK not in log, "the token was printed, and masked in the log"


def test_token_ends_with_the_job(task: Task, team: TeamCluster, alice: CliUser) -> None:
    # In another encoding: the log masks the token itself.
    log = task("leaks", 'echo "$PAI_USER_TOKEN" | tr . "\\n"')
    token = ".".join(log.split())
    assert team.get("/api/v2/jobs", token=token).status == 401
    task_environment = {
        "PAI_REST_SERVER_URI": url(team),
        "PAI_USER_NAME": "alice",
        "PAI_USER_TOKEN": token,
        "PAI_RUNTIME_DIR": "/nowhere",
    }
    for words in (["list-jobs"], ["listdir", "pai://here/0/user"]):
        done = alice.pai(*words, env=task_environment)
        assert done.status == 1 and "the job has ended or was stopped" in done.err, done
        assert token not in done.err, done


def test_task_cannot_change_its_token_or_select_a_storage(task: Task) -> None:
    log = task(
        "settles",
        "pai update-token --token x || echo status $?",
        "pai select-storage -s home || echo status $?",
        "ls -A $HOME",
    )
    assert "gets its token from its cluster" in log and log.count("status 2") == 2, log
    assert not log.splitlines()[-1].startswith(".openpai"), log


# -- reserved names --------------------------------------------------------------------------------


def test_here_outside_a_task_is_an_error_that_says_so(alice: CliUser) -> None:
    for words in (["listdir", "pai://here/0/"], ["list-jobs", "-a", "here"], ["select-cluster", "here"]):
        done = alice.pai(*words)
        assert done.status == 2 and "this is not a task" in done.err, done
    program = "import fsspec; fsspec.filesystem('pai').glob('pai://here/0/*')"
    done = alice.run([sys.executable, "-c", program])
    assert done.status == 1 and "this is not a task" in done.err, done


def test_here_is_refused_as_a_new_alias(alice: CliUser, team: TeamCluster) -> None:
    login = ["--pai-uri", url(team), "--user", "alice", "--token", team.tokens["alice"]]
    done = alice.pai("add-cluster", "-a", "here", *login)
    assert done.status == 2 and "'here'" in done.err and "task's own cluster" in done.err, done
    done = alice.pai("add-storage-cluster", "-a", "here", "--type", "mount", "--path", "/tmp")
    assert done.status == 2 and "'here'" in done.err, done
    before = (alice.home / ".openpai/clusters.yaml").read_text()
    done = alice.pai("edit-clusters", "--editor", "sed -i s/team/here/")
    assert done.status == 1 and "the cluster here" in done.err and "reserved" in done.err, done
    assert (alice.home / ".openpai/clusters.yaml").read_text() == before


def test_jobs_is_refused_as_a_new_storage_name(alice: CliUser) -> None:
    words = ["add-storage-cluster", "-a", "disks", "--type", "mount", "--path", "/tmp", "configs:name=jobs"]
    done = alice.pai(*words)
    assert done.status == 2 and "'jobs'" in done.err, done


def test_reserved_names_that_exist_keep_their_meaning(alice: CliUser, team: TeamCluster) -> None:
    folder = alice.home / "disk"
    folder.mkdir()
    (folder / "file").write_text("kept")
    file = alice.home / ".openpai/clusters.yaml"
    entries = yaml.safe_load(file.read_text())
    storages = [{"name": "jobs", "type": "mount", "path": str(folder)}]
    entries[0]["cluster_alias"] = "here"
    entries.append({"cluster_alias": "disks", "type": "storage-mount", "storages": storages})
    file.write_text(json.dumps(entries))
    file.chmod(0o600)
    assert alice.pai("copy", "pai://disks/jobs/file", "-").out == "kept"
    assert alice.pai("listdir", "pai://here/0/user").status == 0
    assert alice.pai("list-jobs", "-a", "here").status == 0
    findings = alice.pai("doctor").out
    assert "The cluster here has a name that is reserved" in findings
    assert "The storage jobs of disks has a name that is reserved" in findings
    # Another entry may still be edited.
    assert alice.pai("edit-clusters", "--editor", "sed -i s/alice/alicia/").status == 0
