"""Launcher of PaddleCloud's roles: what it runs, in every role, where Paddle's programs are installed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairuntime.task import paddle_launcher
from pairuntime.task.paddle_launcher import Peer, Task

VARIABLES = {
    "PADDLE_JOB_NAME": "word-emb",
    "TRAINERS": "2",
    "PSERVERS": "1",
    "PADDLE_INIT_PORT": "7164",
    "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
    "PAI_TASK_INDEX": "1",
    "PAI_HOST_IP_pserver_0": "10.0.0.9",
    "PAI_PORT_LIST_pserver_0_paddle": "4001,4002",
    "PAI_HOST_IP_trainer_0": "10.0.0.1",
    "PAI_PORT_LIST_trainer_0_paddle": "5001,5002",
    "PAI_HOST_IP_trainer_1": "10.0.0.2",
    "PAI_PORT_LIST_trainer_1_paddle": "6001,6002",
    "PAI_CONTAINER_HOST_paddle_PORT_LIST": "6001,6002",
    "PAI_CURRENT_CONTAINER_IP": "10.0.0.2",
    "PADDLE_INIT_PORTS_NUM": "1",
    "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
}
# Prints its arguments and environment for the test, and succeeds.
PROGRAM = """#!/usr/bin/env python3
# It has the commands train and pserver.
import json, os, sys
json.dump([sys.argv, dict(os.environ)], open(os.environ["CALLED"], "w"))
"""


class LauncherRun:
    """The launcher in the folder of a task, with a package that is there already."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch):
        self.work = folder / "work"
        self.package = self.work / "word-emb"
        self.package.mkdir(parents=True)
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.called = folder / "called"
        self._patch = patch
        path = f"{self.programs}:{os.environ['PATH']}"
        self.set(**VARIABLES, PATH=path, PAI_WORK_DIR=str(self.work), CALLED=str(self.called))
        for name in ("PYTHONPATH", "OUTPUT", "TRAIN_LIST", "ENTRY", "TOPOLOGY", "PADDLE_TRAINING_ROLE"):
            patch.delenv(name, raising=False)
        package = str(self.package)

        def use_package(task: Task) -> None:
            task._package = package

        # The copy from the storage is tested with jobs; here only what is run counts.
        patch.setattr(Task, "_copy_package", use_package)
        patch.setattr(Task, "store_changes", lambda task, code: code)
        patch.setattr(Task, "_reported_peers", lambda task, role: [Peer("10.0.0.7", "8080")])
        # A thread that would outlive the test.
        patch.setattr(Task, "watch_trainers", lambda task: None)
        patch.setattr("signal.signal", lambda number, handler: None)

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self._patch.setenv(name, value)

    def install(self, name: str, variable: str = "") -> Path:
        """A program; ``variable`` is the launcher's constant for one that has a fixed path."""
        program = self.programs / name
        program.write_text(PROGRAM)
        program.chmod(0o755)
        if variable:
            self._patch.setattr(paddle_launcher, variable, str(program))
        return program

    def start(self, *words: str) -> tuple[int, list[str], dict[str, str]]:
        """The exit code, and arguments and environment of the program."""
        code = paddle_launcher.main(list(words))
        arguments, environment = json.loads(self.called.read_text())
        return code, [Path(arguments[0]).name, *arguments[1:]], environment


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LauncherRun]:
    before = Path.cwd()
    yield LauncherRun(tmp_path, monkeypatch)
    os.chdir(before)


def test_trainer_of_a_v1_job_runs_paddle_train(launcher: LauncherRun) -> None:
    launcher.install("paddle")
    launcher.set(TOPOLOGY="conf.py", PADDLE_INIT_NUM_PASSES="5", PADDLE_INIT_TRAINER_COUNT="4")
    launcher.set(PADDLE_INIT_USE_GPU="0", PADDLE_INIT_NICS="eth0", OUTPUT="/models")
    code, called, environment = launcher.start("start_trainer", "v1")
    assert code == 0
    assert called == [
        *("paddle", "train", "--port=4001", "--nics=eth0", "--ports_num=1", "--ports_num_for_sparse=1"),
        *("--num_passes=5", "--trainer_count=4", "--saving_period=1", "--log_period=20", "--local=0"),
        *("--rdma_tcp=tcp", "--config=conf.py", "--use_gpu=0", "--trainer_id=1", "--save_dir=/models"),
        *("--pservers=10.0.0.9", "--num_gradient_servers=2"),
    ]
    assert environment["PYTHONPATH"] == environment["TRAINER_PACKAGE"] == str(launcher.package)
    assert (launcher.work / "trainer_id").read_text() == "1"
    assert (launcher.work / "trainer_count").read_text() == "2"


def test_trainer_of_a_v2_job_runs_the_entry_in_the_package(
    launcher: LauncherRun, capfd: pytest.CaptureFixture[str]
) -> None:
    launcher.set(ENTRY="echo at $PWD; echo $PADDLE_INIT_PSERVERS $PADDLE_INIT_TRAINER_ID; exit 139")
    assert paddle_launcher.main(["start_trainer", "v2"]) == 139
    assert capfd.readouterr().out == (
        "label selector: paddle-job-pserver=word-emb, desired: 1\n"
        "running pod list:  [('Running', '10.0.0.9')]\n"
        "label selector: paddle-job=word-emb, desired: 2\n"
        "running pod list:  [('Running', '10.0.0.1'), ('Running', '10.0.0.2')]\n"
        f"Starting training job:  {launcher.package}, num_gradient_servers: 2, trainer_id:  1, version:  v2\n"
        f"at {launcher.package}\n10.0.0.9 1\n"
        "job returned 139...setting pod return message...\n"
    )


def test_parameter_server_runs_paddle_pserver(launcher: LauncherRun) -> None:
    launcher.install("paddle")
    launcher.set(PADDLE_INIT_NICS="eth0", PAI_CONTAINER_HOST_paddle_PORT_LIST="4001,4002")
    code, called, environment = launcher.start("start_pserver")
    assert (code, called) == (
        0,
        [
            *("paddle", "pserver", "--use_gpu=0", "--port=4001", "--ports_num=1", "--ports_num_for_sparse=1"),
            *("--nics=eth0", "--comment=paddle_process_k8s", "--num_gradient_servers=2"),
        ],
    )
    assert environment["PADDLE_TRAINING_ROLE"] == "PSERVER"


def test_master_of_a_fault_tolerant_job(launcher: LauncherRun) -> None:
    launcher.install("master", "_MASTER_PROGRAM")
    code, called, _ = launcher.start("start_master")
    assert code == 0
    assert called == [
        *("master", "-port=8080", "-chunk-per-task=1", "-task-timout-dur=16s"),
        "-endpoints=http://127.0.0.1:2379",
    ]


def test_parameter_server_of_a_fault_tolerant_job_knows_the_master(launcher: LauncherRun) -> None:
    launcher.install("pserver", "_PSERVER_PROGRAM")
    launcher.set(PAI_CONTAINER_HOST_paddle_PORT_LIST="4001,4002")
    code, called, _ = launcher.start("start_new_pserver")
    assert code == 0
    assert called == [
        *("pserver", "-port=4001", "-num-pservers=1", "-log-level=debug"),
        "-etcd-endpoint=http://10.0.0.7:2379",
    ]


def test_trainer_of_a_fault_tolerant_job_knows_master_and_etcd(launcher: LauncherRun) -> None:
    launcher.set(ENTRY=str(launcher.install("entry")))
    code, _, environment = launcher.start("start_new_trainer")
    assert (code, environment["MASTER_IP"], environment["ETCD_IP"]) == (0, "10.0.0.7", "10.0.0.7")
    assert environment["PADDLE_INIT_TRAINER_ID"] == environment["PADDLE_TRAINER_ID"] == "1"


@pytest.mark.parametrize(("role", "trainer_id"), [("TRAINER", "1"), ("PSERVER", None), ("", "1")])
def test_fluid_program_has_its_role_by_a_variable(
    launcher: LauncherRun, role: str, trainer_id: str | None
) -> None:
    launcher.set(ENTRY=str(launcher.install("entry")), PADDLE_TRAINING_ROLE=role)
    code, _, environment = launcher.start("start_fluid")
    assert (code, environment["PADDLE_TRAINING_ROLE"]) == (0, role or "TRAINER")
    assert environment.get("PADDLE_TRAINER_ID") == trainer_id
    assert (environment["PADDLE_TRAINERS"], environment["PADDLE_PSERVERS"]) == ("2", "1")
    assert environment["PADDLE_PSERVER_IPS"] == "10.0.0.9"
    assert environment["PADDLE_TRAINER_IPS"] == "10.0.0.1,10.0.0.2"


def test_list_of_training_files_is_divided_among_the_trainers(launcher: LauncherRun) -> None:
    launcher.install("paddle")
    launcher.set(TOPOLOGY="conf.py", TRAIN_LIST="train.list.all")
    (launcher.package / "train.list.all").write_text("a\nb\nc\n")
    assert launcher.start("start_trainer", "v1")[0] == 0
    assert (launcher.work / "train.list").read_text() == "c\n"


def test_fewer_training_files_than_trainers(launcher: LauncherRun, capfd: pytest.CaptureFixture[str]) -> None:
    launcher.install("paddle")
    launcher.set(TOPOLOGY="conf.py", TRAIN_LIST="few")
    (launcher.package / "few").write_text("a\n")
    assert paddle_launcher.main(["start_trainer", "v1"]) == 0
    assert "file count less than trainers\n" in capfd.readouterr().out
    assert not launcher.called.exists()


def test_missing_list_of_training_files_is_a_sentence(
    launcher: LauncherRun, capfd: pytest.CaptureFixture[str]
) -> None:
    launcher.install("paddle")
    launcher.set(TOPOLOGY="conf.py", TRAIN_LIST="missing")
    assert paddle_launcher.main(["start_trainer", "v1"]) == 1
    assert capfd.readouterr().err == (
        "The list of training files in TRAIN_LIST, missing, cannot be read: No such file or directory.\n"
    )


# The program of Paddle 2 and later: whatever the command, it prints its version and succeeds.
LATER_PADDLE = """#!/bin/bash
trainers=`grep -Eo 'trainer_count.[0-9]+' <<< "$@"`
case "$1" in
    *) echo PaddlePaddle 3.2.2 ;;
esac
"""


@pytest.mark.parametrize("is_later", [False, True], ids=["none", "later"])
@pytest.mark.parametrize(
    ("words", "entry"),
    [
        ("start_trainer v1", ""),
        ("start_trainer v2", "paddle train"),
        ("start_trainer v2", "paddle  train --config=x.py"),
        ("start_pserver", ""),
    ],
)
def test_paddle_without_the_command_is_a_sentence(
    launcher: LauncherRun, capfd: pytest.CaptureFixture[str], words: str, entry: str, is_later: bool
) -> None:
    launcher.set(TOPOLOGY="conf.py", ENTRY=entry, PATH=f"{launcher.programs}:/usr/bin:/bin")
    if is_later:
        launcher.install("paddle").write_text(LATER_PADDLE)
    assert paddle_launcher.main(words.split()) == 127
    said = capfd.readouterr()
    command = "pserver" if words == "start_pserver" else "train"
    assert f"There is no program here with the command `paddle {command}`" in said.err
    assert "PaddlePaddle 3.2.2" not in said.out


def test_parameter_server_of_a_later_paddle_runs_the_entry(
    launcher: LauncherRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parameter server that ended at once would leave its trainers waiting."""
    launcher.install("paddle").write_text(LATER_PADDLE)
    launcher.set(ENTRY=f"exec {launcher.install('entry')} TRAINING_ROLE")
    code, called, environment = launcher.start("start_pserver")
    assert (code, called[0], environment["TRAINING_ROLE"]) == (0, "entry", "PSERVER")


@pytest.mark.parametrize("words", [[], ["--help"], ["start"], ["start_trainer"], ["start_trainer", "v3"]])
def test_other_words_print_the_usage(
    launcher: LauncherRun, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert paddle_launcher.main(words) == 2
    assert capfd.readouterr().err.startswith("usage: pai-runtime paddle start_pserver")
