"""A person at a machine: a home folder, a project folder, and the real executables."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


LIMIT = 120


DROPPED = {"NO_COLOR", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PAI_DEBUG"}


class Person:
    """Types commands. Each has a HOME, so each has a cluster of their own."""

    def __init__(self, folder: Path):
        self.home = folder / "home"
        self.project = folder / "project"
        self.home.mkdir(parents=True)
        self.project.mkdir(parents=True)

    def env(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in DROPPED and not k.lower().endswith("_proxy")}
        return {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "TERM": "xterm",
            **more,
        }

    def pai(
        self, *words: str, cwd: Path | None = None, stdin: str = "", env: dict[str, str] | None = None
    ) -> "Done":
        return self.run(["pai", *words], cwd=cwd, stdin=stdin, env=env)

    def sh(self, line: str) -> "Done":
        return self.run(["bash", "-c", line])

    def run(
        self,
        command: list[str],
        cwd: Path | None = None,
        stdin: str = "",
        env: dict[str, str] | None = None,
        limit_s: float = LIMIT,
    ) -> "Done":
        done = subprocess.run(
            command,
            cwd=cwd or self.project,
            env=self.env(**(env or {})),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def begin(self, *words: str, **more: object) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["pai", *words],
            cwd=self.project,
            env=self.env(),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Whoever runs the tests in the background has taught them to ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **more,  # type: ignore[arg-type]
        )

    def write(self, **files: str) -> None:
        for name, content in files.items():
            (self.project / name.replace("__", ".")).write_text(content)

    @property
    def cluster_home(self) -> Path:
        return next((self.home / ".openpai/local").iterdir())

    def handshake(self) -> dict[str, object]:
        return json.loads((self.cluster_home / "server.json").read_text())

    def change_handshake(self, **changes: object) -> None:
        (self.cluster_home / "server.json").write_text(json.dumps({**self.handshake(), **changes}))

    def state(self, job: str) -> str:
        return json.loads(self.pai("job-status", job, "-o", "json").out)["jobStatus"]["state"]

    def leave(self) -> None:
        if (self.home / ".openpai/local").exists():
            self.pai("stop-cluster", "--now")


class Done:
    def __init__(self, status: int, out: str, err: str):
        self.status, self.out, self.err = status, out, err

    def __repr__(self) -> str:
        return f"status {self.status}\nout: {self.out}\nerr: {self.err}"


def until(what: Callable[[], object], within: float = 60.0) -> None:
    """Wait for something to become true, and say so if it does not."""
    deadline = time.monotonic() + within
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture(scope="session", name="shared_home")
def shared_home_fixture(tmp_path_factory):
    """One person with a warm cluster, for the tests that leave it as they found it."""
    person = Person(tmp_path_factory.mktemp("shared"))
    assert person.pai("start-cluster").status == 0
    yield person
    person.leave()


@pytest.fixture(name="person")
def person_fixture(shared_home, tmp_path):
    """The shared person in an empty project folder."""
    shared_home.project = tmp_path / "project"
    shared_home.project.mkdir()
    return shared_home


@pytest.fixture(name="newcomer")
def newcomer_fixture(tmp_path):
    """A person on a fresh machine."""
    person = Person(tmp_path / "newcomer")
    yield person
    person.leave()


@pytest.fixture(name="neighbour")
def neighbour_fixture(tmp_path):
    """Another one, with a home of their own."""
    person = Person(tmp_path / "neighbour")
    yield person
    person.leave()


def done_job(person, name: str, *words: str) -> str:
    done = person.pai("sub", "--no-sources", "--mem", "32m", "--wait", "-j", name, *(words or ["true"]))
    assert done.out.strip(), done
    return done.out.strip()
