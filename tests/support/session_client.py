"""A session whose host a test starts itself, as the server does, and a client for it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from openpaisdk.client import ClusterClient
from openpaisdk.client.session import STDOUT, Session

DEADLINE_S = 90.0


class HostedSession:
    """A session host with this command line, connected with a `Session`."""

    def __init__(self, words: Sequence[str]):
        ours, theirs = socket.socketpair()
        with theirs:
            self.host = subprocess.Popen(list(words), stdin=theirs, start_new_session=True)
        ours.settimeout(DEADLINE_S)
        self.session = Session(ours)
        # What the command has written, by stream.
        self.written = {1: b"", 2: b""}

    def step(self) -> None:
        """Wait for the next messages."""
        for stream, data in self.session.receive():
            self.written[stream] += data

    def read_until(self, text: bytes, stream: int = 1) -> None:
        while text not in self.written[stream]:
            assert self.session.exit_status is None, self.written
            self.step()

    def wait(self) -> int:
        """Wait for the end of the command; returns its exit status."""
        while self.session.exit_status is None:
            self.step()
        self.close()
        return self.session.exit_status

    def send_all(self, data: bytes) -> None:
        """Send input of any size."""
        while data:
            count = min(self.session.stdin_credit, 1 << 16)
            if not count:
                self.step()
                continue
            self.session.send_stdin(data[:count])
            data = data[count:]

    def close(self) -> None:
        """Drop the connection; returns when the host has exited."""
        self.session.close()
        self.host.wait(DEADLINE_S)


def run_in_session(
    words: Sequence[str],
    command: Sequence[str],
    stdin: bytes = b"",
    terminal: tuple[str, int, int] | None = None,
) -> tuple[int, bytes, bytes]:
    """Run a command to its end; returns exit status, stdout and stderr."""
    hosted = HostedSession(words)
    hosted.session.start(command, terminal)
    hosted.send_all(stdin)
    if terminal is None:
        hosted.session.end_stdin()
    status = hosted.wait()
    return status, hosted.written[1], hosted.written[2]


def environment_lines(text: bytes) -> set[str]:
    """Variables that `env -0` printed, without those that a shell or a session sets for itself."""
    own = ("PWD=", "OLDPWD=", "SHLVL=", "_=", "TERM=", "PAI_EXEC_SESSION=", "HOSTNAME=")
    return {os.fsdecode(line) for line in text.split(b"\0") if line and not os.fsdecode(line).startswith(own)}


def place(text: bytes) -> bytes:
    """What a shell prints about its place. Of the steps of a Slurm job only their common cgroup counts."""
    return re.sub(rb"/step_\S*", b"", text)


def first_outputs(cluster: ClusterClient, job: str, count: int, *, at_once: int = 4) -> Counter[object]:
    """What so many commands in a job wrote and ended with, each in a session of its own, and how often."""

    def outcome(number: int) -> object:
        session = cluster.with_own_connection().open_session(job)
        session.start(["sh", "-c", "echo ready; cat; exit 3"])
        session.send_stdin(b"hello")
        session.end_stdin()
        said = b""
        while session.exit_status is None:
            said += b"".join(data for stream, data in session.receive() if stream == STDOUT)
        session.close()
        return said, session.exit_status

    with ThreadPoolExecutor(at_once) as pool:
        return Counter(pool.map(outcome, range(count)))
