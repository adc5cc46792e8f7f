"""`pai notebook-job`: a real Jupyter runs real notebooks in jobs of an embedded cluster."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from support.cli_user import CliUser, until
from support.notebooks import cell, texts, write_notebook
from support.wheels import WITHOUT_COMPARISON, make_wheel

ROOM = ("--mem", "400m")
HERE = ("--no-browser", *ROOM)


def jobs(user: CliUser) -> list[str]:
    return [job["name"] for job in json.loads(user.pai("list-jobs", "-o", "json").out)]


def fake_browser(user: CliUser, status: int = 0) -> Path:
    """A browser that writes down what it was asked to open."""
    program, opened = user.project / "browser", user.project / "opened"
    program.write_text(f'#!/bin/sh\necho "$1" > {opened}\nexit {status}\n')
    program.chmod(0o755)
    return program


# -- before anything is sent ------------------------------------------------------------------------------


def test_preview_shows_the_command_and_submits_nothing(user) -> None:
    write_notebook(user.project / "my model.ipynb", "lr")
    before = jobs(user)
    done = user.pai("notebook-job", "--preview", "-p", "lr=0.1", "-p", "name=big one", "my model.ipynb")
    assert done.status == 0, done
    assert "\nname: my_model_" in done.out and "pai-runtime notebook -p lr=0.1 -p " in done.out
    assert "name=big one" in done.out and "my model.ipynb" in done.out
    assert jobs(user) == before


def test_opai_job_notebook_is_the_same_command(user) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    done = user.run(["opai", "job", "notebook", "--preview", "-i", "x/y:1", "--gpu", "2", "a.ipynb"])
    assert done.status == 0 and "pai-runtime notebook a.ipynb" in done.out, done
    assert "uri: x/y:1" in done.out and "gpu: 2" in done.out


def test_options_and_files_are_those_of_sub(user) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    options = shlex.split(
        "-j same --tag t --cpu 2 --memoryMB 700 --instances 2 --ports http=1 -i x/y:1 --env A=1 --secret B=2 "
        "--pip-installs six --pip-path pip3 --python python3 --capture-logging --sources a.ipynb -w mine "
        "--outputs out --vc default --priority prod --timeout 2h --retry 1 --after other:end --debug-hold=5m"
    )
    line = yaml.safe_load(user.pai("notebook-job", "--preview", "a.ipynb").out)["taskRoles"]["main"][
        "commands"
    ]
    ours = user.pai("notebook-job", "--strict", "--preview", *options, "a.ipynb")
    assert ours.status == 0, ours
    assert ours.out == user.pai("sub", "--preview", *options, *line).out
    assert "    array:\n" in user.pai("notebook-job", "--array", "x=1,2", "--preview", "a.ipynb").out
    user.write(p__csv="x\n1\n")
    assert "    arrayRows:\n" in user.pai("notebook-job", "--array-file", "p.csv", "--preview", "a.ipynb").out
    drawn = ("--sample", "2", "--sample-seed", "7", "--array", "x=1..9")
    assert "    arrayRows:\n" in user.pai("notebook-job", *drawn, "--preview", "a.ipynb").out
    both = user.pai("notebook-job", "--sources", "a.ipynb", "--no-sources", "a.ipynb")
    assert both.status == 2 and "contradict" in both.err, both


@pytest.mark.slow
def test_each_task_has_results_of_its_own_and_all_outputs_can_be_fetched(user) -> None:
    write_notebook(user.project / "a.ipynb", "import os; print(os.environ['PAI_TASK_INDEX'])")
    done = user.pai(
        "notebook-job", *HERE, "-j", "twice", "--instances", "2", "--fetch=got", "--wait", "a.ipynb"
    )
    assert done.status == 0 and "pai job-outputs twice get" in done.err, done
    assert [texts(user.project / f"got/main-{index}/a.executed.ipynb") for index in (0, 1)] == [
        ["0\n"],
        ["1\n"],
    ]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("cut.ipynb", '{"cells": [', "cut.ipynb is not a notebook: it is not JSON: "),
        ("binary.ipynb", "\udcff\udcfe", "binary.ipynb is not a notebook: it is not JSON."),
        ("empty.ipynb", "", "empty.ipynb is not a notebook: it is not JSON: "),
        ("list.ipynb", "[1]", "list.ipynb is not a notebook: it is JSON, but has no cells."),
        ("other.ipynb", '{"a": 1}', "other.ipynb is not a notebook: it is JSON, but has no cells."),
        ("train.py", "print(1)", "run with: pai sub -- python train.py"),
    ],
)
def test_file_that_is_no_notebook_is_refused_before_the_upload(user, name, content, sentence) -> None:
    (user.project / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    before = jobs(user)
    done = user.pai("notebook-job", name)
    assert done.status == 2 and sentence in done.err and "Traceback" not in done.err, done
    assert done.out == "" and jobs(user) == before


def test_missing_notebook_is_named(user) -> None:
    done = user.pai("notebook-job", "gone.ipynb")
    assert done.status == 2, done
    assert done.err == "pai: The notebook gone.ipynb cannot be read: No such file or directory.\n"


@pytest.mark.parametrize(
    ("parameter", "sentence"),
    [("lr", "-p lr: use NAME=VALUE."), ("1x=2", "'1x' cannot be a parameter"), ("for=2", "'for' cannot be")],
)
def test_wrong_parameter_is_refused(user, parameter: str, sentence: str) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    done = user.pai("notebook-job", "-p", parameter, "a.ipynb")
    assert done.status == 2 and sentence in done.err, done


# -- a run ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_notebook_comes_back_executed_and_its_page_is_opened(user) -> None:
    source = write_notebook(
        user.project / "deep/train.ipynb", "import numbers_here", "print(numbers_here.x * 2)"
    )
    user.project.joinpath("deep/numbers_here.py").write_text("x = 21\n")
    user.project.joinpath(".gitignore").write_text("*.ipynb\n")  # the notebook travels in any case
    browser = fake_browser(user)
    done = user.run(["pai", "notebook-job", *ROOM, "deep/train.ipynb"], env={"BROWSER": str(browser)})
    assert done.status == 0, done
    name = done.out.strip()
    assert name.startswith("train_") and "Downloaded train.html and train.executed.ipynb." in done.err
    assert texts(user.project / "train.executed.ipynb") == ["", "42\n"]
    page = user.project / "train.html"
    assert "<title>train</title>" in page.read_text() and "42" in page.read_text()
    until(lambda: (user.project / "opened").exists())
    assert (user.project / "opened").read_text() == f"{page.as_uri()}\n"
    assert (
        json.loads((user.project / "deep/train.ipynb").read_text()) == source
    )  # the user's file is unchanged
    outputs = user.pai("listdir", f"pai://local/jobs/{name}/output").out
    assert "train.html" in outputs and "train.executed.ipynb" in outputs
    assert "train.ipynb" in user.pai("listdir", f"pai://local/jobs/{name}/source/deep").out
    assert user.pai("logs", name).out == "42\n"


@pytest.mark.slow
def test_second_run_replaces_the_results_of_the_first(user) -> None:
    for number in ("1", "2"):
        write_notebook(user.project / "a.ipynb", f"print({number})")
        done = user.pai("notebook-job", *HERE, "a.ipynb", "-o", "json")
        assert done.status == 0, done
        result = json.loads(done.out)
        assert result["results"] == ["a.html", "a.executed.ipynb"] and result["state"] == "SUCCEEDED"
        assert texts(user.project / "a.executed.ipynb") == [f"{number}\n"]


@pytest.mark.slow
def test_failing_cell_fails_the_job_and_the_partial_notebook_comes_back(user) -> None:
    write_notebook(user.project / "a.ipynb", "print('before')", "{}['missing']", "print('never')")
    browser = fake_browser(user, status=1)
    done = user.run(["pai", "notebook-job", *ROOM, "-j", "fails", "a.ipynb"], env={"BROWSER": str(browser)})
    assert done.status == 3 and "fails FAILED" in done.err and "Traceback" not in done.err, done
    assert "could not be opened" in done.err
    assert texts(user.project / "a.executed.ipynb") == ["before\n", "KeyError: 'missing'", ""]
    assert "KeyError" in (user.project / "a.html").read_text()
    log = user.pai("logs", "fails").out
    assert "Traceback (most recent call last)" in log and "KeyError: 'missing'" in log and "\x1b" not in log
    assert log.endswith("Cell 2 of a.ipynb failed.\n") and "never" not in log


@pytest.mark.slow
def test_outputs_are_in_the_log_while_the_notebook_runs(user) -> None:
    wait = "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)"
    write_notebook(user.project / "a.ipynb", wait, "'a value'", "import sys; print('bad', file=sys.stderr)")
    name = user.pai("notebook-job", "--no-wait", *HERE, "a.ipynb").out.strip()
    until(lambda: user.pai("logs", name).out == "first\n")
    assert user.pai("exec", name, "--", "touch", "go").status == 0
    assert user.pai("wait", name).status == 0
    assert user.pai("logs", name).out == "first\n'a value'\nbad\n"
    assert not (user.project / "a.html").exists()


@pytest.mark.slow
def test_parameters_follow_the_cell_of_the_defaults(user) -> None:
    defaults = cell("lr = 1\nname = 'small'\nflag = None", "parameters")
    write_notebook(user.project / "a.ipynb", "x = 5", defaults, "print(lr * 2, name, flag, x)")
    given = ("-p", "lr=0.25", "-p", "name=it's", "--parameter", "flag=True")
    done = user.pai("notebook-job", *HERE, *given, "a.ipynb")
    assert done.status == 0, done
    assert texts(user.project / "a.executed.ipynb") == ["", "", "", "0.5 it's True 5\n"]
    injected = json.loads((user.project / "a.executed.ipynb").read_text())["cells"][2]
    assert injected["metadata"]["tags"] == ["injected-parameters"]


@pytest.mark.slow
def test_kernel_that_dies_is_reported_and_the_partial_notebook_comes_back(user) -> None:
    write_notebook(user.project / "a.ipynb", "print('alive')", "import os; os.kill(os.getpid(), 9)", "1")
    done = user.pai("notebook-job", *HERE, "-j", "dies", "a.ipynb")
    assert done.status == 3, done
    assert user.pai("logs", "dies").out.startswith("alive\nThe kernel died in cell 2 of a.ipynb.")
    assert texts(user.project / "a.executed.ipynb") == ["alive\n", "", ""]


@pytest.mark.slow
def test_stopped_notebook_leaves_what_it_has_done(user) -> None:
    write_notebook(user.project / "a.ipynb", "print('done')", "import time; print('in it'); time.sleep(600)")
    name = user.pai("notebook-job", "--no-wait", *HERE, "a.ipynb").out.strip()
    until(lambda: "in it" in user.pai("logs", name).out)
    assert user.pai("stop-job", name).status == 0
    until(lambda: user.state(name) == "STOPPED")
    assert user.pai("job-outputs", name, "get", "--to", "got").status == 0
    assert texts(user.project / "got/a.executed.ipynb") == ["done\n", "in it\n"]


@pytest.mark.slow
def test_kernel_that_only_the_authors_machine_has_becomes_python(user) -> None:
    kernel = {"name": "conda-env-mine-py", "display_name": "Mine", "language": "python"}
    write_notebook(user.project / "a.ipynb", "print(1)", kernel=kernel)
    assert user.pai("notebook-job", *HERE, "a.ipynb").status == 0
    write_notebook(user.project / "r.ipynb", "1", kernel={"name": "ir", "display_name": "R", "language": "R"})
    done = user.pai("notebook-job", *HERE, "-f", "r.ipynb")
    assert done.status == 3 and "r.ipynb needs the kernel ir, which this task does not have." in done.out, (
        done
    )
    assert "Traceback" not in done.out


@pytest.mark.slow
def test_results_arrive_although_the_server_is_killed_during_the_run(new_user) -> None:
    new_user.start_cluster()
    wait = "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)"
    write_notebook(new_user.project / "a.ipynb", wait, "print('last')")
    command = new_user.begin("notebook-job", *HERE, "-j", "survivor", "a.ipynb")
    until(lambda: "first" in new_user.pai("logs", "survivor").out)
    os.kill(int(new_user.handshake()["pid"]), signal.SIGKILL)
    # The path of the task is that of the cluster's home; no server is needed for it.
    (work,) = new_user.home.glob(".openpai/local/*/tasks/*/*/work")
    (work / "go").touch()
    out, err = command.communicate(timeout=120)
    assert command.returncode == 0 and out == "survivor\n", err
    assert texts(new_user.project / "a.executed.ipynb") == ["first\n", "last\n"]


# -- Jupyter ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_environment_without_jupyter_gets_one_once(new_user) -> None:
    """Wheels that lead to this environment's Jupyter stand in for those of the index."""
    wheels = new_user.project / "wheels"
    wheels.mkdir()
    site = sysconfig.get_paths()["purelib"]
    for package in ("nbclient", "nbconvert", "ipykernel"):
        make_wheel(wheels, package, "9.9", {f"{package}_found.pth": f"{site}\n"})
    pip = ("--env", "PIP_NO_INDEX=1", "--env", f"PIP_FIND_LINKS={wheels}")
    bare = ("--python", sys._base_executable, *HERE, *pip)  # type: ignore[attr-defined]
    path = {"PATH": "/usr/bin:/bin"}
    write_notebook(new_user.project / "a.ipynb", "import sys; print(sys.prefix)")
    pai = [str(Path(sys.executable).parent / "pai"), "notebook-job", "-f", *bare, "--no-sources", "a.ipynb"]
    first = new_user.run(pai, env=path)
    assert (
        first.status == 0 and "Installing nbclient nbconvert ipykernel (cached on this machine)." in first.out
    )
    assert "openpaisdk/packages" in texts(new_user.project / "a.executed.ipynb")[0]
    second = new_user.run(pai, env=path)
    assert second.status == 0 and "Installing" not in second.out, second


@pytest.mark.slow
def test_packages_of_the_job_are_beside_jupyter_and_editable_packages_of_its_environment(user) -> None:
    make_wheel(user.project, "coloured", "1.0", {"coloured.py": "x = 'red'\n"})
    # The package of this repository is an editable one where the tests run.
    cell = "%load_ext openpaisdk\nimport coloured; print(coloured.x, submit_notebook.__name__)"
    write_notebook(user.project / "a.ipynb", cell)
    packages = ("--pip-installs", "./coloured-1.0-py3-none-any.whl", "--env", "PIP_NO_INDEX=1")
    packages += ("--env", WITHOUT_COMPARISON)
    done = user.pai("notebook-job", "-f", *HERE, *packages, "a.ipynb")
    assert done.status == 0 and "Installing nbclient" not in done.out, done
    assert texts(user.project / "a.executed.ipynb") == ["red submit_notebook\n"]


@pytest.mark.slow
def test_no_jupyter_and_no_index_is_one_sentence(new_user) -> None:
    write_notebook(new_user.project / "a.ipynb", "1")
    path = {"PATH": "/usr/bin:/bin"}
    options = ("--python", sys._base_executable, "--env", "PIP_NO_INDEX=1", *HERE)  # type: ignore[attr-defined]
    pai = [
        str(Path(sys.executable).parent / "pai"),
        "notebook-job",
        "-f",
        *options,
        "--no-sources",
        "a.ipynb",
    ]
    done = new_user.run(pai, env=path)
    assert done.status == 3 and "Traceback" not in done.out, done
    assert "This task has no Jupyter, and it could not be installed: " in done.out, done
    assert "pip install nbclient nbconvert ipykernel" in done.out and "has left no results" in done.err


@pytest.mark.slow
def test_ctrl_c_says_how_to_wait_again_and_how_to_get_the_results(user) -> None:
    write_notebook(user.project / "long.ipynb", "print('begun', flush=True); import time; time.sleep(600)")
    process = user.begin("notebook-job", *HERE, "-j", "left_notebook", "long.ipynb")
    assert "left_notebook" in process.stderr.readline()
    until(lambda: user.state("left_notebook") == "RUNNING")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert "pai wait left_notebook\n" in err and "pai job-outputs left_notebook get --to .\n" in err, err
    assert user.pai("stop-job", "left_notebook").status == 0
