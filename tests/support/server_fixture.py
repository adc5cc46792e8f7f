"""A real `paicluster serve` in a temporary home, a client for it, and a check for leftover processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from openpaisdk.client import Endpoint
from support.openapi_check import Description, current_description
from support.prepared_database import prepare_database
from support.process_template import COMMAND, ForkedProcess, can_fork, fork_server

# A loaded machine may stall for half a minute: tests wait for an event, with a generous deadline.
DEADLINE_S = 90.0
FINISHED_STATES = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


def eventually(condition: Callable[[], Any], what: str = "it", deadline_s: float = DEADLINE_S) -> Any:
    """The value of ``condition`` once it is true; fails with ``what`` at the deadline."""
    ends = time.monotonic() + deadline_s
    pause = 0.005
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > ends:
            raise AssertionError(f"{what} did not happen in {deadline_s:.0f} s (last value: {value!r})")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def job(
    name: str,
    *commands: str,
    instances: int = 1,
    cpu: int = 1,
    memory_mb: int = 16,
    gpu: int = 0,
    ports: dict[str, int] | None = None,
    completion: dict[str, Any] | None = None,
    **top: Any,
) -> dict[str, Any]:
    """A job with one task role, ``main``; `role` makes further ones."""
    main = role(
        *commands,
        instances=instances,
        cpu=cpu,
        memory_mb=memory_mb,
        gpu=gpu,
        ports=ports,
        completion=completion,
    )
    return {
        "protocolVersion": 2,
        "name": name,
        "type": "job",
        # On the host: a machine with podman would pull any other image.
        "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "host"}],
        "taskRoles": {"main": main},
        **top,
    }


def role(
    *commands: str,
    instances: int = 1,
    cpu: int = 1,
    memory_mb: int = 16,
    gpu: int = 0,
    ports: dict[str, int] | None = None,
    completion: dict[str, Any] | None = None,
) -> dict[str, Any]:
    task_role: dict[str, Any] = {
        "instances": instances,
        "dockerImage": "image",
        "resourcePerInstance": {"cpu": cpu, "memoryMB": memory_mb, "gpu": gpu},
        "commands": list(commands),
    }
    if ports:
        task_role["resourcePerInstance"]["ports"] = ports
    if completion:
        task_role["completion"] = completion
    return task_role


# Command of a task that greets as an SSH server does.
SSH_SERVER = f"""exec {sys.executable} -c '
import os, socket
server = socket.create_server(("", int(os.environ["PAI_CONTAINER_SSH_PORT"])))
while True:
    server.accept()[0].sendall(b"SSH-2.0-test\\r\\n")
'"""


class FollowStream:
    """The frames of one follow connection, as they arrive."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse):
        self._connection = connection
        self._response = response

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while line := self._response.readline():
            frame = json.loads(line)
            if size := frame.get("size"):
                frame["data"] = self._response.read(size)
            yield frame

    def close(self) -> None:
        self._response.close()
        self._connection.close()


@dataclass
class Cluster:
    home: Path
    options: tuple[str, ...] = ("--embedded", "--cpus", "64", "--memory-mb", "65536", "--gpus", "4")
    variables: dict[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = COMMAND
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    address: tuple[str, int] = ("", 0)
    user: str = ""
    token: str = ""
    # Every response is validated against it.
    description: Description | None = field(default_factory=current_description)

    # -- process -------------------------------------------------------------------------------

    def spawn(self, *more: str) -> subprocess.Popen[bytes]:
        """Start the server with its command, without waiting for it."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.program, *self.arguments(*more)], stdout=log, stderr=log, env=self._environment()
            )
        return self.process

    def fork(self, *more: str) -> ForkedProcess:
        """Start the server as `spawn` does, in a process that has imported everything."""
        with self.log.open("ab") as log:
            self.process = fork_server(self.program, self.arguments(*more), self._environment(), log)
        return self.process

    def arguments(self, *more: str) -> list[str]:
        """What follows `paicluster`."""
        return ["serve", "--home", str(self.home), "--port", "0", *self.options, *more]

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, **self.variables}
        environment.pop("PAICLUSTER_ADMIN_PASSWORD", None)
        environment.update(self.variables)
        return environment

    @property
    def log(self) -> Path:
        """Output of the server; beside the home, which may be on a full disk."""
        return self.home.with_name(self.home.name + ".log")

    def launch(self, *more: str) -> None:
        """Start the server in the quickest way, without waiting for it."""
        if can_fork(self.program, self.variables):
            self.fork(*more)
        else:
            self.spawn(*more)

    def start(self, *more: str) -> Cluster:
        self.launch(*more)
        return self.wait_ready()

    def start_command(self, *more: str) -> Cluster:
        """As `start`, with the command itself: `/proc` has its arguments and variables."""
        self.spawn(*more)
        return self.wait_ready()

    def wait_ready(self) -> Cluster:
        assert self.process is not None
        process = self.process

        def ready() -> dict[str, Any] | None:
            if process.poll() is not None:
                raise AssertionError(
                    f"the server ended with {process.returncode}: {self.log.read_text()[-2000:]}"
                )
            with contextlib.suppress(FileNotFoundError):
                handshake: dict[str, Any] = json.loads((self.home / "server.json").read_text())
                if handshake["pid"] == process.pid:
                    return handshake
            return None

        handshake = eventually(ready, "the server's handshake")
        where = urlsplit(handshake["url"])
        self.address = (where.hostname or "", where.port or 0)
        self.user = handshake.get("user") or self.user
        self.token = handshake.get("token") or self.token
        return self

    def wait_for_signal_handlers(self) -> None:
        """Wait until the process handles SIGTERM: the interpreter takes a moment to start."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status")
        mask = 1 << (signal.SIGTERM - 1)

        def handles_sigterm() -> bool:
            return any(
                line.startswith("SigCgt:") and int(line.split()[1], 16) & mask
                for line in status.read_text().splitlines()
            )

        eventually(handles_sigterm, "the server's signal handler")

    def kill(self) -> None:
        """`kill -9`."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self, deadline_s: float = DEADLINE_S) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(deadline_s)

    def close(self) -> None:
        """Stop all jobs, then the server; no process of either may remain."""
        has_ended = False
        try:
            if self.process is None:
                return
            if self.process.poll() is None:
                self.stop_every_job()
                assert self.terminate() == 0, self.log.read_text()[-3000:]
            eventually(lambda: not self.processes(), f"the end of all processes of {self.home}")
            has_ended = True
        finally:
            for pid in () if has_ended else self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def stop_every_job(self) -> None:
        token = self.admin_token()
        unfinished = "/api/v2/jobs?state=WAITING,RUNNING,STOPPING,UNKNOWN"
        for one in self.get(unfinished, token=token).json():
            path = f"/api/v2/jobs/{one['username']}~{one['name']}/executionType"
            self.ask("PUT", path, {"value": "STOP"}, token=token)
        eventually(lambda: self.get(unfinished, token=token).json() == [], "the end of every job")

    def admin_token(self) -> str:
        return self.token

    def main_thread_cpu_s(self) -> float:
        """Processor seconds of the main thread: while it is busy, no request is answered."""
        assert self.process is not None
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9

    def processes(self) -> dict[int, str]:
        """All processes of this home: server, zygote, supervisors, tasks."""
        marks = (os.fsencode(self.home) + b"/", os.fsencode(self.home) + b"\0")
        found = {}
        if self.process is not None and self.process.poll() is None:
            found[self.process.pid] = "the server"
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            if pid == os.getpid() or pid in found:
                continue
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if not line:  # a zombie
                    continue
                known = line + b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
                if any(mark in known for mark in marks):
                    found[pid] = line.replace(b"\0", b" ").decode(errors="replace")
        return found

    # -- requests ------------------------------------------------------------------------------

    def endpoint(self) -> Endpoint:
        """Where clients of the SDK find it, as its user."""
        return Endpoint("http://{}:{}".format(*self.address), self.user, self.token)

    def connect(self, timeout: float = DEADLINE_S) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.address, timeout=timeout)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        token: str | None = "",
    ) -> Reply:
        """Send one request. ``token``: "" is the cluster's own, None sends none."""
        sent = dict(headers or {})
        token = self.token if token == "" else token
        if token:
            sent.setdefault("Authorization", f"Bearer {token}")
        if isinstance(body, dict | list):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        if isinstance(body, str):
            body = body.encode()
        connection = self.connect()
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            reply = Reply(response.status, received, response.read())
        finally:
            connection.close()
        if self.description is not None:
            self.description.check(method, path, reply.status, reply.headers, reply.body)
        return reply

    def get(self, path: str, **more: Any) -> Reply:
        return self.ask("GET", path, **more)

    def path(self, name: str, rest: str = "") -> str:
        return f"/api/v2/jobs/{self.user}~{name}{rest}"

    def submit(self, spec: dict[str, Any] | str, key: str | None = None, **more: Any) -> Reply:
        headers = {"Content-Type": "text/yaml"}
        if key is not None:
            headers["Idempotency-Key"] = key
        body = spec if isinstance(spec, str) else json.dumps(spec)
        return self.ask("POST", "/api/v2/jobs", body, headers, **more)

    def accept(self, spec: dict[str, Any]) -> str:
        """Submit a job that must be accepted; returns its name."""
        reply = self.submit(spec)
        assert reply.status == 202, reply.text
        return str(spec["name"])

    def detail(self, name: str, attempt: int | None = None) -> dict[str, Any]:
        rest = "" if attempt is None else f"/attempts/{attempt}"
        reply = self.get(self.path(name, rest))
        assert reply.status == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.detail(name)["jobStatus"]
        return found

    def stop(self, name: str) -> Reply:
        return self.ask("PUT", self.path(name, "/executionType"), {"value": "STOP"})

    def events(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(self.path(name, "/events")).json()["data"]
        return found

    def metric(self, name: str) -> float:
        """Value of a metric in `/metrics`."""
        lines = self.get("/metrics").text.splitlines()
        (value,) = [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]
        return float(value)

    def follow(self, name: str, **query: Any) -> FollowStream:
        connection = self.connect()
        path = self.path(name, "/follow") + ("?" + urlencode(query) if query else "")
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        response = connection.getresponse()
        if response.status != 200:
            raise AssertionError(f"{response.status} {response.read()!r}")
        return FollowStream(connection, response)

    def wait_state(self, name: str, *states: str) -> dict[str, Any]:
        """The job's status once it is in one of these states, according to its follow stream."""
        stream = self.follow(name, tail=0)
        ends = time.monotonic() + DEADLINE_S
        try:
            for frame in stream:
                if time.monotonic() > ends:
                    raise AssertionError(f"{name} is not {' or '.join(states)}: {self.status(name)}")
                if frame["kind"] == "state" and frame["state"] in states:
                    return self.status(name)
                if frame["kind"] == "end" and frame["state"] not in states:
                    raise AssertionError(f"{name} ended as {frame['state']}: {self.status(name)}")
        finally:
            stream.close()
        raise AssertionError(f"the stream of {name} ended")

    def wait_over(self, name: str) -> dict[str, Any]:
        return self.wait_state(name, *FINISHED_STATES)

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Submit a job and wait until it has finished; returns its status."""
        return self.wait_over(self.accept(spec))

    def log_of(self, name: str, stream: str = "all", **query: Any) -> bytes:
        """The bytes of a task's log, through a follow request."""
        frames = self.follow(name, stream=stream, follow="false", **query)
        try:
            return b"".join(frame["data"] for frame in frames if frame["kind"] == "log")
        finally:
            frames.close()


@dataclass
class SecureCluster(Cluster):
    """A cluster with TLS, as localhost; its certificate is trusted directly, without an authority."""

    ca_file: Path = Path()

    def endpoint(self) -> Endpoint:
        where = f"https://localhost:{self.address[1]}"
        return Endpoint(where, self.user, self.token, ca_file=str(self.ca_file))

    def connect(self, timeout: float = 30.0) -> http.client.HTTPConnection:
        trust = ssl.create_default_context(cafile=str(self.ca_file))
        trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return http.client.HTTPSConnection("localhost", self.address[1], timeout=timeout, context=trust)


@pytest.fixture(name="new_cluster")
def new_cluster_fixture(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Factory of clusters, each in its own home and not yet started; closes all of them."""
    clusters: list[Cluster] = []

    def make(name: str = "home", **settings: object) -> Cluster:
        cluster = Cluster(tmp_path / name, **settings)  # type: ignore[arg-type]
        clusters.append(cluster)
        return cluster

    yield make
    for cluster in clusters:
        cluster.close()


@pytest.fixture(name="cluster")
def running_cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    """A running cluster for one test."""
    made = new_cluster()
    prepare_database(made.home)
    return made.start()


@pytest.fixture(scope="module", name="cluster")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One running cluster for all tests of a file."""
    home = tmp_path_factory.mktemp("runtime") / "home"
    prepare_database(home)
    running = Cluster(home).start()
    yield running
    running.close()
