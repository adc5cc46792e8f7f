"""User of the command line: a home folder, a project folder, and the real commands."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openpaisdk.config import task_cluster
from openpaisdk.embedded import start
from openpaisdk.embedded.handshake import read_handshake
from openpaisdk.embedded.home import machine_name
from support.process_template import COMMAND, ForkedProcess, can_fork_command, fork_server, run_command

BIN = Path(sys.executable).parent


LIMIT = 120


DROPPED = {"NO_COLOR", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PAI_DEBUG"}


class CliUser:
    """Runs commands. Each user has a HOME and therefore an embedded cluster of its own."""

    def __init__(self, folder: Path):
        self.home = folder / "home"
        self.project = folder / "project"
        self.home.mkdir(parents=True)
        self.project.mkdir(parents=True)

    def env(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in DROPPED and not k.lower().endswith("_proxy")}
        # The tests may themselves run in a task, whose cluster they must not use.
        kept = {k: v for k, v in kept.items() if k not in task_cluster.VARIABLES}
        # Nor the cloud of the developer who runs them.
        kept = {k: v for k, v in kept.items() if not k.startswith(("AWS_", "AZURE_"))}
        return {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "TERM": "xterm",
            **more,
        }

    def pai(
        self, *words: str, cwd: Path | None = None, stdin: str = "", env: dict[str, str] | None = None
    ) -> "CommandResult":
        return self.run(["pai", *words], cwd=cwd, stdin=stdin, env=env)

    def sh(self, line: str) -> "CommandResult":
        return self.run(["bash", "-c", line])

    def run(
        self,
        command: list[str],
        cwd: Path | None = None,
        stdin: str = "",
        env: dict[str, str] | None = None,
        limit_s: float = LIMIT,
    ) -> "CommandResult":
        folder, variables = cwd or self.project, self.env(**(env or {}))
        if can_fork_command(command, variables, stdin):
            done = run_command(command, variables, folder, stdin, limit_s)
        else:
            done = subprocess.run(
                command,
                cwd=folder,
                env=variables,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def begin(self, *words: str, **more: object) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["pai", *words],
            cwd=self.project,
            env=self.env(),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Tests that run in the background inherit an ignored SIGINT.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **more,  # type: ignore[arg-type]
        )

    def write(self, **files: str) -> None:
        for name, content in files.items():
            (self.project / name.replace("__", ".")).write_text(content)

    @contextlib.contextmanager
    def restored_clusters(self) -> Iterator[Path]:
        """Their `clusters.yaml`, which may not exist yet; afterwards it is what it was."""
        file = self.home / ".openpai/clusters.yaml"
        before = file.read_bytes() if file.exists() else None
        try:
            yield file
        finally:
            if before is not None:
                file.write_bytes(before)
            else:
                file.unlink(missing_ok=True)

    @property
    def cluster_home(self) -> Path:
        return next((self.home / ".openpai/local").iterdir())

    def handshake(self) -> dict[str, object]:
        return json.loads((self.cluster_home / "server.json").read_text())

    def change_handshake(self, **changes: object) -> None:
        (self.cluster_home / "server.json").write_text(json.dumps({**self.handshake(), **changes}))

    def state(self, job: str) -> str:
        """The job's state: asked from the running embedded cluster itself, else with `pai job-status`."""
        try:
            server = self.handshake()
            name = job if "~" in job else f"{server['user']}~{job}"
            request = urllib.request.Request(
                f"{server['url']}/api/v2/jobs/{name}", headers={"Authorization": f"Bearer {server['token']}"}
            )
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                request, timeout=90
            ) as reply:
                detail = json.load(reply)
        except (OSError, KeyError, StopIteration):
            detail = json.loads(self.pai("job-status", job, "-o", "json").out)
        return detail["jobStatus"]["state"]

    def start_cluster(self) -> None:
        """Start the embedded cluster as a command does, in a process that has imported everything."""
        home = self.home / ".openpai/local" / machine_name()
        for folder in (home.parent.parent, home.parent, home):
            folder.mkdir(mode=0o700, exist_ok=True)
        words = ["serve", "--home", str(home), "--host", "127.0.0.1", "--port", "0", "--embedded"]
        with (home / start.LOG).open("ab") as log:
            (home / start.LOG).chmod(0o600)
            server = fork_server(COMMAND, [*words, "--idle-exit", str(start.IDLE_TIMEOUT_S)], self.env(), log)
        until(lambda: self._is_ready(home, server))

    def _is_ready(self, home: Path, server: ForkedProcess) -> bool:
        assert server.poll() is None, (home / start.LOG).read_text()[-2000:]
        found = read_handshake(str(home))
        return found is not None and found.pid == server.pid

    def stop_cluster(self) -> None:
        """Stop the cluster and its jobs. The command starts a stopped one, in case that jobs still run."""
        kept = {path.name for path in self.home.glob(".openpai/local/*/*")}
        # With a `location`, the cluster's home is elsewhere.
        if kept & {"server.json", "location"} or self._has_processes():
            self.pai("stop-cluster", "--now")

    def _has_processes(self) -> bool:
        """Whether a task or a server that is starting has this home on its command line."""
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it may have ended
                if os.fsencode(self.home) in file.read_bytes():
                    return True
        return False


class CommandResult:
    def __init__(self, status: int, out: str, err: str):
        self.status, self.out, self.err = status, out, err

    def __repr__(self) -> str:
        return f"status {self.status}\nout: {self.out}\nerr: {self.err}"


def until(what: Callable[[], object], within: float = 90.0) -> None:
    """Wait until a condition is true; fails after ``within`` seconds."""
    deadline = time.monotonic() + within
    while not what():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.01)


@pytest.fixture(scope="session", name="shared_user")
def shared_user_fixture(tmp_path_factory):
    """A user with a running cluster, for tests that leave no state behind."""
    user = CliUser(tmp_path_factory.mktemp("shared"))
    user.start_cluster()
    assert user.pai("list-jobs").status == 0, "the first command adds the cluster to the settings"
    yield user
    user.stop_cluster()


@pytest.fixture(name="user")
def user_fixture(shared_user, tmp_path):
    """The shared user in an empty project folder, whose settings are gone after the test."""
    own_project, shared_user.project = shared_user.project, tmp_path / "project"
    shared_user.project.mkdir()
    yield shared_user
    # Fixtures of other files use the shared user, too.
    shared_user.project = own_project


@pytest.fixture(name="new_user")
def new_user_fixture(tmp_path):
    """A user on a fresh machine."""
    user = CliUser(tmp_path / "new_user")
    yield user
    user.stop_cluster()


@pytest.fixture(name="other_user")
def other_user_fixture(tmp_path):
    """Another user with a separate home."""
    user = CliUser(tmp_path / "other_user")
    yield user
    user.stop_cluster()


def done_job(user, name: str, *words: str) -> str:
    done = user.pai("sub", "--no-sources", "--mem", "32m", "--wait", "-j", name, *(words or ["true"]))
    assert done.out.strip(), done
    return done.out.strip()
