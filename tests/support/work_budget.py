"""Work of a real server for one request or job, counted instead of timed, whatever else the machine does."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

from support.external_services import debian
from support.server_fixture import Cluster

PROGRAM = (sys.executable, str(Path(__file__).with_name("counting_server_program.py")))
# They depend on how often a thread waits, not on the work.
_WAITS = ("epoll_wait", "epoll_pwait", "epoll_ctl", "poll", "ppoll", "select", "pselect6")

_SERIES = 4
_REPETITIONS = 10


@dataclass(frozen=True)
class Work:
    """What one repetition of an action costs the server; ``system_calls`` on files, sockets and processes."""

    calls: float
    statements: float
    commits: float
    system_calls: float

    def over(self, budget: Work) -> list[str]:
        """What exceeds a budget by more than a tenth."""
        names = ("calls", "statements", "commits", "system calls")
        return [
            f"{name}: {got:.1f}, budget {allowed:g}"
            for name, got, allowed in zip(names, astuple(self), astuple(budget), strict=True)
            if got > allowed * 1.1
        ]


class CountingServer:
    """A cluster whose server counts its work."""

    def __init__(self, cluster: Cluster, counts: Path):
        self.cluster = cluster
        self._counts = counts

    @classmethod
    def start(cls, folder: Path) -> CountingServer:
        counts = folder / "counts"
        cluster = Cluster(folder / "home", program=PROGRAM, variables={"WORK_COUNTS": str(counts)})
        cluster.description = None
        # Forked, it would have counted what other servers imported.
        return cls(cluster.start_command(), counts)

    def work_of(self, action: Callable[[int], object]) -> Work:
        """Work of ``action(number)``: the least of several means, since work in the background only adds."""
        numbers = itertools.count()

        def repeat() -> None:
            for _ in range(_REPETITIONS):
                action(next(numbers))

        repeat()  # fills caches
        counted = [self._count(repeat) for _ in range(_SERIES)]
        return Work(*(min(counts) / _REPETITIONS for counts in zip(*counted, strict=True)))

    def _count(self, action: Callable[[], object]) -> tuple[int, ...]:
        before = self._read()
        action()
        after = self._read()
        names = ("calls", "statements", "commits")
        return (*(after[name] - before[name] for name in names), self._system_calls(action))

    def _read(self) -> dict[str, int]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._counts))
            return dict(json.loads(connection.recv(1000)))

    def _system_calls(self, action: Callable[[], object]) -> int:
        debian(["strace"], commands=["strace"])
        assert self.cluster.process is not None
        output = self._counts.with_name("strace")
        classes = "trace=%file,%desc,%network,%process"
        command = ["strace", "-f", "-e", classes, "-o", str(output), "-p", str(self.cluster.process.pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            assert "attached" in tracer.stderr.readline()
            action()
            tracer.send_signal(signal.SIGINT)
        names = Counter(
            words[1].split("(")[0]
            for words in map(str.split, output.read_text().splitlines())
            if len(words) > 1 and "(" in words[1]
        )
        return sum(count for name, count in names.items() if name not in _WAITS)


__all__ = ["CountingServer", "Work"]
