"""Examples, run as their pages say, on the embedded cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path

import pytest

from pairuntime.task import python_packages
from support.external_services import debian, missing
from support.paths import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```bash\n(.*?)```", re.DOTALL)


class Person:
    def __init__(self, home: Path):
        self.home = home
        self.examples = home / "examples"
        shutil.copytree(EXAMPLES, self.examples)

    def run(self, example: str, script: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(self.home)}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        return subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=self.examples / example,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def follow_page(self, example: str, upto: int | None = None) -> str:
        """Run the blocks of an example's page one after the other; what they printed."""
        printed = ""
        found = BLOCK.findall((EXAMPLES / example / "README.md").read_text())
        for block in [block for not_run, block in found if not not_run][:upto]:
            done = self.run(example, block)
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
            printed += done.stdout
        return printed


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    someone = Person(tmp_path_factory.mktemp("someone"))
    printed = someone.follow_page("train")
    assert "y = 3.0" in printed
    yield someone
    someone.run("train", "pai stop-cluster --now")


def test_served_model_answers_and_restarts_after_a_crash(user: Person) -> None:
    user.follow_page("serve", upto=1)
    first = ask(user, "?x=1")
    assert abs(first["y"] - 5) < 0.2
    os.kill(server_of(user), 9)
    eventually_retried(user)
    assert ask(user, "?x=1") == first
    assert user.run("serve", "pai stop-job serve").returncode == 0


def server_of(user: Person) -> int:
    """The process of this user that serves the model; a copy of the tests may run another."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program, *arguments = (process / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
            folder = (process / "cwd").readlink()
        except OSError:
            continue  # it has exited
        if (Path(program).name, *arguments) == ("python", "serve.py") and folder.is_relative_to(user.home):
            found.append(int(process.name))
    (server,) = found
    return server


def ask(user: Person, question: str) -> dict[str, float]:
    ends = time.monotonic() + 60
    while True:
        status = json.loads(user.run("serve", "pai job-status -o json serve").stdout)
        task = next(iter(status["taskRoles"].values()))["taskStatuses"][0]
        try:
            where = f"http://{task['containerIp']}:{task['containerPorts']['http']}/{question}"
            with urllib.request.urlopen(where, timeout=5) as answer:
                found: dict[str, float] = json.load(answer)
                return found
        except (OSError, TypeError, KeyError):
            assert time.monotonic() < ends, status
            time.sleep(0.1)


def eventually_retried(user: Person) -> None:
    ends = time.monotonic() + 60
    while json.loads(user.run("serve", "pai job-status -o json serve").stdout)["jobStatus"]["retries"] == 0:
        assert time.monotonic() < ends, "the job was not tried again"
        time.sleep(0.1)


def environment_with(wheel: str) -> str:
    """An environment with this package, installed once on a machine. Not every platform has a wheel."""
    try:
        return python_packages.environment(sys.executable, [wheel])
    except subprocess.CalledProcessError:
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", wheel]
        tried = subprocess.run(pip, capture_output=True, text=True, check=False)
        if "No matching distribution" in tried.stderr:
            pytest.skip(f"There is no wheel {wheel} for this platform.")
        missing(wheel)
        raise


@pytest.mark.slow
def test_trainers_of_paddlecloud_train_with_paddlepaddle(user: Person) -> None:
    page = (EXAMPLES / "paddlecloud" / "README.md").read_text()
    (block,) = [block for not_run, block in BLOCK.findall(page) if not_run]
    install, train = block.split("\n", 1)
    if find_library("gomp") is None:
        # As the page says; a compiler has brought it to most machines.
        debian(["libgomp1"], commands=[], files=[f"/usr/lib/{os.uname().machine}-linux-gnu/libgomp.so.1"])
    # Where the first line of the page installs it.
    (user.home / "paddle").symlink_to(environment_with(install.split()[-1]))
    done = user.run("paddlecloud", train)
    printed = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, printed
    for trainer in (0, 1):
        assert f"trainer {trainer} of 2: y = 3.00 x + 2.00\n" in done.stdout, printed
    assert "/jobs/with-paddle/output/linear.pdparams\n" in done.stdout, printed


def test_every_framework_has_a_valid_job_and_a_dockerfile(user: Person) -> None:
    printed = user.follow_page("frameworks")
    folders = sorted(path.name for path in (EXAMPLES / "frameworks").iterdir() if path.is_dir())
    assert printed.count("valid") == len(folders) >= 10
    assert all((EXAMPLES / "frameworks" / name / "Dockerfile").exists() for name in folders)
