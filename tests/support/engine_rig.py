"""Test rig that drives an engine like the controller: a hint triggers an observation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import pytest

from paicluster.engines.interface import Engine, LogSource, Notice, Observation, Phase, TaskLaunch
from paicluster.logs.reader import LogReader
from pairuntime.supervisor import claim
from support.terminal import is_readable

DEADLINE_S = 90.0
# Hints may get lost: like the controller, the rig observes periodically.
_SWEEP_INTERVAL_S = 1.0


class ReadableEngine(Engine, LogSource, Protocol):
    """Both sides of an engine."""


class Rig(Protocol):
    """One engine under test, and what the contract does to it from outside."""

    node: str
    # Size of a large gang for this engine.
    many: int

    def dress(self, task: TaskLaunch) -> TaskLaunch:
        """The task as this engine needs it: in an image with bash, with the test's folder mounted."""

    def engine(self, **limits: Any) -> ReadableEngine:
        """A fresh engine object over the same state, as a restarted server makes it.

        ``log_limit`` and ``log_segment`` are sizes in bytes; ``enforce_limits`` limits tasks to
        their request.
        """

    def launch_elsewhere(self, gang: Sequence[TaskLaunch]) -> int:
        """Launch from another process with its own engine. Returns the pid of that process."""

    def make_unlaunchable(self, uid: str) -> None:
        """Make the launch of this attempt fail."""

    def unstartable(self, task: TaskLaunch) -> TaskLaunch:
        """The same task, changed so that it can be launched but its program cannot be started."""

    def kill_supervisor(self, uid: str) -> None:
        """``kill -9`` of the supervisor of a running task."""

    def leftovers(self, mark: str) -> list[str]:
        """Running processes with this text in their environment or command line."""

    def without_limits(self) -> str:
        """Why this engine cannot limit memory here; empty if it can."""

    def bare(self, task: TaskLaunch) -> TaskLaunch | None:
        """The task without Python and bash; None for an engine without images."""


def running_with(mark: str) -> list[str]:
    """Processes of this machine with this text in their environment or on their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
                if mark.encode() in command + Path(f"/proc/{name}/environ").read_bytes():
                    found.append(f"{name} {command.decode(errors='replace')}")
            except OSError:
                continue
    return found


def missing(what: str) -> None:
    """The machine lacks something that a test needs: skip it here, fail in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing")


def mark() -> str:
    """A marker by which all processes of a test can be found."""
    return f"mark{uuid.uuid4().hex}"


def task(rig: Rig, script: str, **fields: Any) -> TaskLaunch:
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **fields.pop("environment", {})}
    made = TaskLaunch(uid=str(uuid.uuid4()), node=rig.node, script=script, environment=environment, **fields)
    return rig.dress(made)


class Driven:
    def __init__(self, rig: Rig, **limits: Any):
        self.engine = rig.engine(**limits)
        self._changed: dict[str, asyncio.Event] = {}
        self._launched: list[str] = []
        # Notices of the engine by attempt.
        self.notices: list[tuple[str, Notice]] = []

    async def __aenter__(self) -> Self:
        await self.engine.start(
            lambda uid: self._event(uid).set(), lambda uid, notice: self.notices.append((uid, notice))
        )
        return self

    async def __aexit__(self, problem: type[BaseException] | None, *_: object) -> None:
        if problem is not None and self._launched:
            # A failed test does not come to its own stop; its tasks would slow all other tests down.
            await self.engine.stop(self._launched, 0)
        await self.engine.close()

    def _event(self, uid: str) -> asyncio.Event:
        return self._changed.setdefault(uid, asyncio.Event())

    async def launch(self, *gang: TaskLaunch) -> None:
        self._launched += [one.uid for one in gang]
        await self.engine.launch(gang)

    async def look(self, uid: str) -> Observation:
        return (await self.engine.observe([uid]))[uid]

    async def hinted(self, uid: str) -> None:
        """Wait for a hint about the attempt."""
        await self._event(uid).wait()
        self._event(uid).clear()

    async def until(self, uid: str, *phases: Phase) -> Observation:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self._event(uid).clear()
            seen = await self.look(uid)
            if seen.phase in phases:
                return seen
            assert time.monotonic() < deadline, f"{uid} is still {seen.phase.value}"
            try:
                await asyncio.wait_for(self._event(uid).wait(), _SWEEP_INTERVAL_S)
            except TimeoutError:
                pass

    async def ended(self, uid: str) -> Observation:
        seen = await self.until(uid, Phase.ENDED, Phase.LOST)
        assert seen.phase is Phase.ENDED
        return seen

    async def all_ended(self, uids: Iterable[str]) -> dict[str, Observation]:
        return {uid: await self.ended(uid) for uid in uids}

    async def run(self, *gang: TaskLaunch) -> list[Observation]:
        """Launch a gang and wait for its end."""
        await self.launch(*gang)
        return [await self.ended(task.uid) for task in gang]

    def reader(self, uid: str, stream: str = "all") -> LogReader:
        return LogReader(self.engine.log_folder(uid), stream)

    def log(self, uid: str, stream: str = "all", offset: int = 0) -> bytes:
        """Everything from this offset on; a gap is a failure."""
        reader, data = self.reader(uid, stream), bytearray()
        while chunk := self.reader(uid, stream).read(offset, 1 << 20).data:
            assert reader.read(offset, 1).offset == offset, "a part of the log is missing"
            data += chunk
            offset += len(chunk)
        return bytes(data)

    async def wait_for_output(self, uid: str, text: bytes, stream: str = "all") -> None:
        """Wait until the task has written this."""
        await appears(lambda: text in self.log(uid, stream), f"{text!r} in the log")


async def appears(true: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        await asyncio.sleep(0.01)


async def nothing_left(rig: Rig, word: str) -> None:
    """Wait until killed processes have disappeared."""
    deadline = time.monotonic() + DEADLINE_S
    began = time.monotonic()
    while left := rig.leftovers(word):
        now = time.monotonic()
        assert now < deadline, f"still running: {left}"
        # To look at all processes takes a while: not more of the processor than what is waited for.
        await asyncio.sleep(max(0.01, 4 * (now - began)))
        began = time.monotonic()


def lines_of(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


class Elsewhere:
    """Servers in their own processes, so that they can be killed: each launches a gang and stays."""

    def __init__(self) -> None:
        self._servers: list[subprocess.Popen[str]] = []

    def launch(
        self, program: Path, request: dict[str, Any], environment: dict[str, str] | None = None
    ) -> int:
        """Start the program, send it the gang, and wait for the launch. Returns its pid."""
        server = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._servers.append(server)
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        assert server.stdout.readline() == "launched\n"
        return server.pid

    def close(self) -> None:
        for server in self._servers:
            server.kill()
            server.wait()
            for pipe in (server.stdin, server.stdout):
                if pipe is not None:
                    pipe.close()


def supervisor_pid(folder: Path) -> int:
    """Pid of the process that has claimed the attempt of this folder."""
    owner = claim.read(str(folder))
    assert owner is not None
    pid = owner["pid"]
    assert isinstance(pid, int)
    return pid


def kill_supervisors(home: Path) -> None:
    """Leftovers of a failed test must not disturb the next one."""
    for path in (home / "tasks").glob("*/*/claim"):
        owner = claim.read(str(path.parent)) or {}
        pid = owner.get("pid")
        if isinstance(pid, int) and claim.is_held(str(path.parent)):
            kill_if_there(pid)


def kill_if_there(pid: int) -> None:
    """A process that was found a moment ago may have ended since."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def block(folder: Path) -> None:
    """Create a file in place of the attempt's folder: not even root can create the folder then."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.touch()


def in_terminal(command: list[str], typed: bytes) -> tuple[int, bytes]:
    """Run a command in a terminal of its own with this input; returns its exit status and output."""
    pid, fd = pty.fork()
    if pid == 0:
        try:
            os.execvp(command[0], command)
        finally:
            os._exit(127)
    os.write(fd, typed)
    shown = b""
    ends = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends:
        if not is_readable(fd, 0.5):
            continue
        try:
            part = os.read(fd, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown
