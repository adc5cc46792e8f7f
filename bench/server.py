"""A real cluster server for the benchmarks, a minimal client, and measures of processes."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from paiprotocol.jobs.ports import PORT_START

# FS_IOC_SETFLAGS, FS_EXTENT_FL and FS_TOPDIR_FL of linux/fs.h.
_SET_FLAGS = 0x40086602
_EXTENT_FLAG = 0x80000
_TOPDIR_FLAG = 0x20000
# For what takes a moment: a start or an end of processes on a machine that may be busy.
_TIMEOUT_S = 90.0


def _separate_folder() -> Path:
    """A folder whose subfolders ext4 places in other block groups than existing ones.

    ext4 does not reuse inodes of deleted files for a minute or more, and every new file searches past all of
    them in its block group: files deleted there by tests or earlier rows would be measured, too.
    """
    folder = Path(tempfile.mkdtemp(prefix="pai-bench-"))
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", _EXTENT_FLAG | _TOPDIR_FLAG))
    except OSError:
        pass  # other file systems do not need it
    finally:
        os.close(fd)
    return folder


class Server:
    """`with Server() as s:` a cluster in a new home, removed afterwards."""

    def __init__(self, *options: str, home: Path | None = None):
        self._options = options
        self._own_home = home is None
        self.home = home or Path(tempfile.mkdtemp(prefix="home-", dir=_separate_folder()))
        self.url = self.token = self.user = ""
        self.ready_s = 0.0
        self._is_started = False

    def start(self) -> None:
        handshake = self.home / "server.json"
        handshake.unlink(missing_ok=True)
        with (self.home / "server.log").open("ab") as log:
            began = time.perf_counter()
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "paicluster",
                    "serve",
                    "--home",
                    str(self.home),
                    "--port",
                    "0",
                    "--embedded",
                    *self._options,
                ],
                stdout=log,
                stderr=log,
            )
        while not handshake.exists():
            if self.process.poll() is not None or time.perf_counter() - began > _TIMEOUT_S:
                self.process.kill()
                self.process.wait()
                raise RuntimeError((self.home / "server.log").read_text())
            time.sleep(0.002)
        self.ready_s = time.perf_counter() - began
        values = json.loads(handshake.read_text())
        self.url, self.token, self.user = values["url"], values["token"], values["user"]
        self._is_started = True

    def stop(self) -> None:
        self._is_started = False
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the server alone; its tasks continue."""
        self._is_started = False
        self.process.kill()
        self.process.wait(_TIMEOUT_S)

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.process.poll() is None:
                self.stop_all_jobs()
                self.stop()
            # Ctrl-C ends the server, too.
            elif self._is_started and (kind is None or issubclass(kind, Exception)):
                log = (self.home / "server.log").read_text(errors="replace")
                raise RuntimeError(f"The server ended with {self.process.returncode}: {log[-2000:]}")
        finally:
            self.end_tasks()
            if self._own_home:
                # At exit, not now: see `_separate_folder`.
                atexit.register(shutil.rmtree, self.home.parent, ignore_errors=True)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        connection = self.connect()
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, self.headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {text!r}")
        return json.loads(text) if text else None

    def stop_all_jobs(self) -> None:
        page = self.call(
            "GET", "/api/v2/jobs?state=WAITING,RUNNING,STOPPING&limit=50000&order=submissionTime,ASC"
        )
        running = [job for job in page if job["state"] != "WAITING"]
        for job in running:
            name = f"{job['username']}~{job['name']}"
            self.call("PUT", f"/api/v2/jobs/{name}/executionType", {"value": "STOP"})

    def end_tasks(self) -> None:
        """Kill what outlives the server: tasks do, when it was killed or ended before they had."""
        deadline = time.monotonic() + _TIMEOUT_S
        while left := self.remaining_pids():
            if time.monotonic() > deadline:
                raise RuntimeError(f"Processes of {self.home} do not end: {left}")
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def remaining_pids(self) -> list[int]:
        """Processes that have this home in their command line or in their variables."""
        # A longer name is the folder of someone else.
        home = re.compile(re.escape(os.fsencode(self.home)) + rb"(?=[/\0]|\Z)")
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it may have ended
                command = (folder / "cmdline").read_bytes()
                # A zombie has no command line.
                if command and home.search(command + b"\0" + (folder / "environ").read_bytes()):
                    found.append(int(folder.name))
        return [pid for pid in found if pid != os.getpid()]

    def pids(self) -> list[int]:
        """The server and its own child processes."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]


def free_port() -> int:
    """A port below those of tasks and of connections, which would take it before its server does."""
    while True:
        port = random.SystemRandom().randrange(10_000, PORT_START)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for_port(port: int, timeout_s: float = _TIMEOUT_S) -> None:
    """Wait until a server accepts connections."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def job(name: str, command: str, *, cpu: int = 1, memory_mb: int = 64, pad: int = 0) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "protocolVersion": 2,
        "name": name,
        "type": "job",
        "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "host"}],
        "taskRoles": {
            "main": {
                "instances": 1,
                "dockerImage": "image",
                "resourcePerInstance": {"cpu": cpu, "memoryMB": memory_mb, "gpu": 0},
                "commands": [command],
            }
        },
    }
    if pad:
        spec["description"] = "x" * max(0, pad - len(json.dumps(spec)) - 20)
    return spec


def follow_to_end(server: Server, name: str) -> str:
    """Follow a job to its end; its final state."""
    connection = server.connect()
    connection.request("GET", f"/api/v2/jobs/{server.user}~{name}/follow", headers=server.headers)
    response = connection.getresponse()
    while True:
        frame = json.loads(response.readline())
        if frame.get("size"):
            response.read(frame["size"])
        if frame["kind"] == "end":
            connection.close()
            return str(frame["state"])


def pss_kb(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total


def cpu_s(pids: list[int]) -> float:
    """CPU time of all threads, from the kernel scheduler's statistics: finer than clock ticks."""
    total = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9
