"""Runtime plugins before and after a task's commands, run by a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from paiprotocol.jobs import read_job, task_script

PLUGIN = "com.microsoft.pai.runtimeplugin"


def job_with(
    *plugins: dict[str, Any], commands: tuple[str, ...] = ("echo user",), **more: Any
) -> dict[str, Any]:
    role = {
        "instances": 1,
        "dockerImage": "image",
        "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
        "commands": list(commands),
        **more.pop("role", {}),
    }
    return {
        "protocolVersion": 2,
        "name": "j",
        "type": "job",
        "prerequisites": [
            {"name": "image", "type": "dockerimage", "uri": "host"},
            *more.pop("prerequisites", ()),
        ],
        "taskRoles": {"main": role},
        "extras": {PLUGIN: list(plugins)},
        **more,
    }


def run(job: dict[str, Any], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    script = "set -o errexit -o nounset -o pipefail\n" + task_script("main", read_job(job))
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def cmd(before: str, after: str = "", **more: Any) -> dict[str, Any]:
    return {"plugin": "cmd", "parameters": {"preCommands": [before], "postCommands": [after]}, **more}


def test_plugins_run_before_and_in_reverse_order_after_commands(tmp_path: Path) -> None:
    done = run(job_with(cmd("echo a1", "echo a2"), cmd("echo b1", "echo b2")), tmp_path)
    assert done.stdout.split() == ["a1", "b1", "user", "b2", "a2"]


def test_callbacks_are_supported(tmp_path: Path) -> None:
    callbacks = [
        {"event": "taskStarts", "commands": ["echo starts"]},
        {"event": "taskSucceeds", "commands": ["echo succeeds"]},
    ]
    done = run(job_with({"plugin": "cmd", "parameters": {"callbacks": callbacks}}), tmp_path)
    assert done.stdout.split() == ["starts", "user", "succeeds"]


def test_failed_plugin_fails_the_task_unless_ignored(tmp_path: Path) -> None:
    assert run(job_with(cmd("false")), tmp_path).returncode == 1
    done = run(job_with(cmd("false\nexit 3", failurePolicy="ignore")), tmp_path)
    assert (done.returncode, done.stdout) == (0, "user\n")
    assert "cmd failed" in done.stderr


def test_post_commands_run_only_after_success(tmp_path: Path) -> None:
    done = run(job_with(cmd("true", "echo after"), commands=("exit 7",)), tmp_path)
    assert (done.returncode, done.stdout) == (7, "")


def test_plugin_runs_in_a_subshell(tmp_path: Path) -> None:
    done = run(job_with(cmd("cd /; export X=1"), commands=("echo ${X:-unset} $PWD",)), tmp_path)
    assert done.stdout.split() == ["unset", str(tmp_path)]


def test_plugin_can_be_limited_to_roles(tmp_path: Path) -> None:
    other = cmd("echo other", taskroles=["other"])
    assert run(job_with(other, cmd("echo mine", taskroles=["main"])), tmp_path).stdout == "mine\nuser\n"


def test_plugin_parameters_can_reference_job_parameters(tmp_path: Path) -> None:
    job = job_with(cmd("echo <% $parameters.word %>"), parameters={"word": "hello"})
    assert run(job, tmp_path).stdout == "hello\nuser\n"


def test_prerequisite_plugin_runs_first(tmp_path: Path) -> None:
    prerequisite = {
        "name": "first",
        "type": "script",
        "plugin": f"{PLUGIN}.cmd",
        "callbacks": [{"event": "taskStarts", "commands": ["echo first"]}],
    }
    job = job_with(cmd("echo second"), prerequisites=[prerequisite], role={"prerequisites": ["first"]})
    assert run(job, tmp_path).stdout.split() == ["first", "second", "user"]


def test_git_plugin_clones_only_into_an_empty_folder(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    git = ["git", "-C", str(origin), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(origin)], check=True)
    (origin / "file").write_text("content")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    work = tmp_path / "work"
    work.mkdir()
    plugin = {"plugin": "git", "parameters": {"repo_uri": str(origin), "clone_dir": "code dir"}}
    done = run(job_with(plugin, commands=("cat 'code dir/file'",)), work)
    assert done.stdout == "content", done.stderr
    again = run(job_with(plugin), work)
    assert again.returncode == 1
    assert "that is not empty" in again.stderr


@pytest.mark.parametrize("name", ["teamwise_storage"])
def test_plugins_handled_by_the_cluster_do_not_fail_the_job(name: str, tmp_path: Path) -> None:
    done = run(job_with({"plugin": name, "parameters": {"jobssh": True}}), tmp_path)
    assert (done.returncode, done.stdout) == (0, "user\n")


def test_unknown_plugin_fails_the_task(tmp_path: Path) -> None:
    done = run(job_with({"plugin": "teleport"}), tmp_path)
    assert done.returncode == 1
    assert "teleport" in done.stderr


def test_tensorboard_runs_only_in_the_first_task(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "tensorboard").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n')
    (tools / "tensorboard").chmod(0o755)
    plugin = {"plugin": "tensorboard", "parameters": {"port": 1234, "logdir": {"run": "/logs"}}}
    wait = "for i in $(seq 50); do [ -s arguments ] && break; sleep 0.02; done"
    here = {
        "PATH": f"{tools}:/usr/bin:/bin",
        "PAI_CURRENT_TASK_ROLE_NAME": "main",
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "1",
    }
    job = job_with(plugin, commands=("true",))
    run(job, tmp_path, **here)
    assert not (tmp_path / "arguments").exists()
    run(
        job_with(plugin, commands=(wait,)),
        tmp_path,
        **{**here, "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "0"},
    )
    assert (tmp_path / "arguments").read_text().split() == [
        "--logdir_spec=run:/logs",
        "--bind_all",
        "--port=1234",
    ]


def test_tensorboard_is_installed_beside_the_packages_of_the_job_or_the_task_says_why_not(
    tmp_path: Path,
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    fake = '#!/bin/sh\necho "$*" >> calls; echo "$PYTHONPATH" >> calls; exit $(cat status)\n'
    (tools / "python3").write_text(fake)
    (tools / "python3").chmod(0o755)
    (tmp_path / "status").write_text("0")
    plugin = {"plugin": "tensorboard", "parameters": {"logdir": {"run": "/logs"}}}
    first = {"PAI_CURRENT_TASK_ROLE_NAME": "main", "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "0"}
    path = {"PATH": f"{tools}:/usr/bin:/bin", "PYTHONPATH": "of-the-job"}
    wait = 'for i in $(seq 50); do grep -q main calls && break; sleep 0.02; done; echo "$PYTHONPATH"'
    done = run(job_with(plugin, commands=(wait,)), tmp_path, **first, **path)
    assert done.stdout == "of-the-job\n"
    install, _, start, packages = (tmp_path / "calls").read_text().splitlines()
    assert install.endswith("--target .pai/tensorboard tensorboard")
    assert start == "-m tensorboard.main --logdir_spec=run:/logs --bind_all --port=6006"
    assert packages == f"{tmp_path}/.pai/tensorboard"
    (tmp_path / "status").write_text("1")
    refused = run(job_with(plugin, commands=("echo never",)), tmp_path, **first, **path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "TensorBoard is neither installed nor can it be; add it to the image" in refused.stderr
