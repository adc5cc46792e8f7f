"""`pai resubmit`, also called `pai clone-job`: submit a changed copy of a job."""

import json
import re
import sys

import pytest
import yaml

from support.cli_user import done_job
from support.notebooks import cell, write_notebook
from support.team_cluster import MACHINE, TeamCluster, add_users


def test_clone_job_submits_a_changed_copy(user) -> None:
    user.write(data="content")
    one = user.pai("sub", "--mem", "32m", "--wait", "-j", "copyme_$", "cat data").out.strip()
    (user.project / "data").unlink()
    done = user.pai("clone-job", one, "-f")
    assert (done.status, done.out) == (0, "content"), done
    done = user.pai(
        "resubmit", one, "-j", "other_$", "-u", "taskRoles:main:commands:0=wc -c < data", "--follow"
    )
    assert (done.status, done.out.strip()) == (0, "7") and "Job other_" in done.err, done
    job = yaml.safe_load(user.pai("clone-job", one, "--preview", "--vc", "default").out)
    assert job["name"].startswith("copyme_") and job["name"] != one
    assert job["defaults"]["virtualCluster"] == "default"


def test_clone_has_its_own_output_folder(user) -> None:
    one = done_job(user, "kept_$", "-w", "/tmp/space", "echo 1 > $PAI_OUTPUT_DIR/r")
    job = yaml.safe_load(user.pai("clone-job", one, "-j", "next", "--preview").out)
    assert job["parameters"] == {"work_directory": "/tmp/space/jobs/next"}


def test_clone_needs_secrets_again(user) -> None:
    one = done_job(user, "hidden_$", "--secret", "KEY=hush", "--env", "A=1", "test $KEY = hush")
    done = user.pai("clone-job", one)
    assert done.status == 2 and "--secret KEY=..." in done.err, done
    done = user.pai("clone-job", one, "--secret", "KEY=hush", "--wait")
    assert done.status == 0, done
    done = user.pai("clone-job", one, "--secret", "KEY", "--wait", env={"KEY": "wrong"})
    assert done.status == 3, done


DEPLOYED = """\
protocolVersion: 2
name: deployed_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  main:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 32, gpu: 0}
    commands: [echo $WHERE]
deployments:
- {name: test, taskRoles: {main: {preCommands: [export WHERE=test]}}}
- {name: prod, taskRoles: {main: {preCommands: [export WHERE=prod]}}}
defaults: {deployment: test}
"""


def test_clone_can_use_another_deployment(user) -> None:
    user.write(job__yaml=DEPLOYED)
    one = user.pai("submit", "--wait", "job.yaml").out.strip()
    assert user.pai("clone-job", one, "-f", "--deployment", "prod").out == "prod\n"
    done = user.pai("clone-job", one, "--deployment", "none")
    assert done.status == 2 and "it has test, prod" in done.err, done


OWN_PYTHON = ("--mem", "512m", "--python", sys.executable)
"""The Python of the tests has Jupyter; another one would install it first."""


def preview_of(user, *words: str) -> dict:
    done = user.pai("resubmit", *words, "--preview")
    assert done.status == 0, done
    return yaml.safe_load(done.out)


def test_resubmit_changes_resources_and_image_and_keeps_the_rest(user) -> None:
    user.write(data="content")
    one = user.pai("sub", "--mem", "32m", "--cpu", "1", "--wait", "-j", "small_$", "cat data").out.strip()
    before = yaml.safe_load(user.pai("job-status", one, "config").out)
    after = preview_of(user, one, "--gpu", "8", "-i", "registry.example/train:2", "--cpu", "4", "--mem", "1g")
    role = after["taskRoles"]["main"]
    assert role["resourcePerInstance"] == {"cpu": 4, "gpu": 8, "memoryMB": 1024}
    assert [item["uri"] for item in after["prerequisites"]] == ["registry.example/train:2"]
    assert role["dockerImage"] == after["prerequisites"][0]["name"]
    assert role["commands"] == ["cat data"]
    assert after["extras"]["openpaisdk"] == before["extras"]["openpaisdk"]
    assert preview_of(user, one, "--memoryMB", "64")["taskRoles"]["main"]["resourcePerInstance"] == {
        "cpu": 1,
        "gpu": 0,
        "memoryMB": 64,
    }


def test_resubmit_runs_another_command_with_the_files_and_variables_of_the_job(user) -> None:
    user.write(data="content")
    words = ("--mem", "32m", "--env", "A=1", "--env", "B=2", "--wait", "-j", "vars_$")
    one = user.pai("sub", *words, "true").out.strip()
    (user.project / "data").unlink()
    done = user.pai(
        *("resubmit", one, "--env", "B=two words", "--secret", "KEY=hush", "-f"),
        *("--", "sh", "-c", 'cat data; echo " $A $B ${#KEY}"'),
    )
    assert (done.status, done.out) == (0, "content 1 two words 4\n"), done
    second = done.err.split("Job ", 1)[1].split()[0]
    again = preview_of(user, second, "--env", "B=3", "--secret", "KEY=hush")
    lines = again["deployments"][0]["taskRoles"]["main"]["preCommands"]
    assert [line for line in lines if line.startswith("export B=")] == ["export B=3"], lines
    assert "hush" not in yaml.safe_dump(again)


def test_resubmit_with_other_files(user) -> None:
    user.write(data="old")
    one = user.pai(
        "sub", "--mem", "32m", "--wait", "-j", "files_$", "cat data 2>/dev/null || echo none"
    ).out.strip()
    user.write(data="new")
    assert user.pai("resubmit", one, "-f").out == "old"
    assert user.pai("resubmit", one, "--sources", "data", "-f").out == "new"
    assert user.pai("resubmit", one, "--no-sources", "-f").out == "none\n"
    done = user.pai("resubmit", one, "--no-sources", "--sources", "data")
    assert done.status == 2 and "contradict each other" in done.err, done


def test_resubmit_takes_the_options_of_sub(user) -> None:
    one = done_job(user, "plain_$", "--tag", "first", "true")
    job = preview_of(
        *(user, one, "--instances", "3", "--ports", "web=2", "--retry", "5", "--priority", "prod"),
        *(
            "--timeout",
            "2h",
            "--after",
            f"{one}:end",
            "--outputs",
            "model.bin",
            "--workspace",
            "/alice/space",
        ),
        *("--tag", "second", "--pip-installs", "six", "--pip-path", "pip3", "--python", "python3"),
        *("--capture-logging", "--debug-hold", "5m", "-j", "named", "--vc", "default"),
    )
    role, ours = job["taskRoles"]["main"], job["extras"]["openpaisdk"]
    assert (role["instances"], role["resourcePerInstance"]["ports"]) == (3, {"web": 2})
    assert (job["name"], job["jobRetryCount"]) == ("named", 5)
    assert job["extras"]["hivedScheduler"]["jobPriorityClass"] == "prod"
    assert job["extras"]["tags"] == ["first", "second"]
    assert (ours["timeLimit"], ours["outputs"]) == (7200, ["model.bin"])
    assert ours["after"] == [{"job": one, "on": "end"}]
    assert job["parameters"]["work_directory"] == "/alice/space/jobs/named"
    lines = "\n".join(job["deployments"][0]["taskRoles"]["main"]["preCommands"])
    assert lines.startswith("trap ") and "held for 300 seconds" in lines
    assert "pip3 install six" in lines and "PAI_CAPTURE_LOGGING=1" in lines and "python3" in lines


TWO_ROLES = """\
protocolVersion: 2
name: roles_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  ps:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 32, gpu: 0}
    commands: ["true"]
  worker:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 32, gpu: 0}
    commands: ["true"]
"""


def test_resubmit_of_a_job_with_several_roles_changes_those_that_are_named(user) -> None:
    user.write(job__yaml=TWO_ROLES)
    one = user.pai("submit", "--wait", "job.yaml").out.strip()
    done = user.pai("resubmit", one, "--gpu", "8")
    assert done.status == 2 and "several task roles (ps, worker)" in done.err and "--role" in done.err, done
    done = user.pai("resubmit", one, "--role", "chief", "--gpu", "8")
    assert done.status == 2 and "no task role 'chief': it has ps, worker" in done.err, done
    job = preview_of(user, one, "--role", "worker", "--gpu", "8", "-i", "ours:1")
    images = {item["name"]: item["uri"] for item in job["prerequisites"]}
    used = {name: images[role["dockerImage"]] for name, role in job["taskRoles"].items()}
    assert used == {"ps": "host", "worker": "ours:1"}
    assert [r["resourcePerInstance"]["gpu"] for r in job["taskRoles"].values()] == [0, 8]
    assert preview_of(user, one)["taskRoles"].keys() == {"ps", "worker"}


def test_resubmit_refuses_what_it_cannot_do(user) -> None:
    done = user.pai("resubmit", "nowhere", "--gpu", "1")
    assert done.status == 1 and "There is no job 'nowhere' on the cluster local." in done.err, done
    done = user.pai("resubmit", "nowhere", "--")
    assert done.status == 2 and "no command after --" in done.err, done
    done = user.pai("resubmit", "nowhere", "--array", "3")
    assert done.status == 2 and "cannot be made an array" in done.err, done
    one = done_job(user, "sweep_$", "--array", "lr=1,2", "true")
    done = user.pai("resubmit", one, "--instances", "4")
    assert done.status == 2 and "one task for each value of its array" in done.err, done


def test_resubmit_from_inside_a_task_uses_the_token_of_the_job(user) -> None:
    """A job prepares its files on cheap hardware, then starts the large one itself."""
    user.write(data="content")
    name = user.pai("sub", "--mem", "32m", "--wait", "-j", "first_$", "cat data").out.strip()
    # No cluster is registered in this home, and there is no file to find a token in.
    line = f"HOME=$PWD pai resubmit {name} --mem 48m -j second_{name} --wait 2>/dev/null"
    done = user.pai("sub", "--no-sources", "--mem", "200m", "-f", line)
    assert (done.status, done.out.strip()) == (0, f"second_{name}"), done
    assert user.pai("logs", f"second_{name}").out == "content"


@pytest.mark.slow
def test_clone_of_another_users_job_says_that_its_sources_belong_to_that_user(new_user, tmp_path) -> None:
    add_users(tmp_path / "home")
    team = TeamCluster(tmp_path / "home", MACHINE)
    try:
        team.start()
        url = f"http://{team.address[0]}:{team.address[1]}"
        for name in ("alice", "bob"):
            words = ["-a", name, "--pai-uri", url, "--user", name, "--token", team.log_in(name)]
            assert new_user.pai("add-cluster", *words).status == 0
            team.tokens[name] = words[-1]
        team.tokens["admin"] = team.log_in("admin")
        new_user.write(data="content")
        assert (
            new_user.pai("sub", "-a", "bob", "--wait", "--sources", "data", "-j", "hers", "cat data").status
            == 0
        )
        for words in (["hers", "--user", "bob"], ["bob~hers"]):
            done = new_user.pai("clone-job", "-a", "alice", *words)
            assert done.status != 0, done
            assert f"The sources of job {words[0]} belong to bob: a copy cannot use them." in done.err, done
            assert "Ask bob for the files, and submit them with pai sub." in done.err, done
        assert new_user.pai("clone-job", "-a", "bob", "hers", "--follow").out == "content"
        assert new_user.pai("sub", "-a", "bob", "--no-sources", "--wait", "-j", "bare", "true").status == 0
        assert new_user.pai("clone-job", "-a", "alice", "bare", "--user", "bob", "--wait").status == 0
    finally:
        team.close()


@pytest.mark.slow
def test_resubmit_of_a_notebook_runs_it_as_it_is_now(user) -> None:
    path = user.project / "lab.ipynb"
    write_notebook(path, cell("rate = 1", "parameters"), "print('first', rate)")
    write_notebook(path, cell("rate = 1", "parameters"), "print('edited', rate)")
    done = user.pai("resubmit", "lab.ipynb", *OWN_PYTHON, "-p", "rate=7", "-f", "--no-browser")
    assert (done.status, done.out) == (0, "edited 7\n"), done
    assert (user.project / "lab.html").exists()
    done = user.pai("resubmit", "lab.ipynb", "--gpu", "8", "-i", "ours:1", "--preview")
    job = yaml.safe_load(done.out)
    assert job["taskRoles"]["main"]["resourcePerInstance"]["gpu"] == 8
    assert [item["uri"] for item in job["prerequisites"]] == ["ours:1"]
    done = user.pai("resubmit", *OWN_PYTHON, "lab.ipynb")
    assert done.status == 0 and done.out.startswith("lab_"), done
    assert user.pai("wait", done.out.strip()).status == 0


def test_resubmit_of_a_notebook_refuses_what_is_for_jobs(user) -> None:
    write_notebook(user.project / "lab.ipynb", "1")
    for words in (["-u", "name=x"], ["--role", "main"], ["--deployment", "x"], ["--user", "x"], ["--", "ls"]):
        done = user.pai("resubmit", "lab.ipynb", *words)
        assert done.status == 2 and f"{words[0]}" in done.err and "is a notebook" in done.err, done
    done = user.pai("resubmit", "absent.ipynb")
    assert done.status == 2 and "absent.ipynb" in done.err, done
    done = user.pai("resubmit", "some_job", "-p", "a=1")
    assert done.status == 2 and "-p sets a parameter of a notebook" in done.err, done


@pytest.mark.slow
def test_resubmit_of_a_notebook_from_inside_an_interactive_job(user) -> None:
    """The notebook as it was edited in the job, with the job's own token and no clusters file."""
    write_notebook(user.project / "lab.ipynb", "print('not edited')")
    write_notebook(
        user.project / "edited.ipynb", "from openpaisdk.runtime import where\nprint('now', where())"
    )
    line = (
        "mv edited.ipynb lab.ipynb && HOME=$PWD pai resubmit lab.ipynb --mem 512m -f --no-browser 2>/dev/null"
    )
    done = user.pai("sub", "--mem", "1g", "--env", "PAI_INTERACTIVE=1", "-f", line)
    assert (done.status, done.out) == (0, "now batch\n"), done


@pytest.mark.slow
def test_notebook_that_resubmits_itself_does_so_once(user) -> None:
    write_notebook(user.project / "diag.ipynb", f"!pai resubmit {' '.join(OWN_PYTHON)} diag.ipynb")
    done = user.pai("resubmit", *OWN_PYTHON, "-f", "--no-browser", "diag.ipynb")
    name = re.search(r"diag_\w+", done.err)[0]
    assert done.status == 0 and f"diag.ipynb runs as the batch job {name}: nothing is submitted." in done.out
    assert [
        one["name"] for one in json.loads(user.pai("list-jobs", "-o", "json").out) if "diag" in one["name"]
    ] == [name]


def test_program_that_submits_itself_is_refused_with_the_chain(user) -> None:
    (user.project / "self.sh").write_text("HOME=$PWD pai sub --mem 48m --sources self.sh sh self.sh\n")
    chain = [
        user.pai("sub", "--mem", "48m", "-j", "selfish", "--sources", "self.sh", "sh", "self.sh").out.strip()
    ]
    while user.pai("wait", chain[-1]).status == 0:
        chain.append(user.pai("logs", "--stream", "stdout", chain[-1]).out.strip())
    log = user.pai("logs", chain[-1]).out
    assert len(chain) == 4 and f"may be 3 deep, and it is as deep already ({' -> '.join(chain)})" in log, log
    assert "limits.submission-depth" in log
