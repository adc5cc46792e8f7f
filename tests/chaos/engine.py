"""Engine of a campaign: where tasks run, the faults of that place, and their permitted effects on tasks.

The base class is the process engine.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.schedule import PROCESS_WEIGHTS
from support.server_fixture import Cluster

if TYPE_CHECKING:
    from chaos.site import Site

LOST, NOT_LAUNCHED = -101, -120

Fault = Callable[["Site", float], None]


class CampaignEngine:
    """The process engine."""

    name = "process"
    weights: Mapping[str, int] = PROCESS_WEIGHTS
    # Faults that no other engine has.
    faults: Mapping[str, Fault] = {}
    # Number of clients, and how long each retries one operation.
    clients = 6
    patience_s = 150.0
    # Exit codes of attempts that are retried and not counted.
    lost_codes = frozenset((LOST, NOT_LAUNCHED))
    # Exit code of a program that a fault killed; None: no fault does.
    killed_code: int | None = None
    # Last lines that the shell of a task may write when a signal ends its command.
    termination_notices: tuple[bytes, ...] = ()
    kills_programs: tuple[str, ...] = ()
    # Faults that end a command in a task, and those that may prevent the start of a task.
    ends_commands: tuple[str, ...] = ("kill-supervisor",)
    prevents_starts: tuple[str, ...] = ("kill-zygote", "fill-disk")

    @contextlib.contextmanager
    def running(self, folder: Path) -> Iterator[None]:
        """Run the services that the engine needs beside the server."""
        yield

    def cluster(self, home: Path, variables: dict[str, str], url: str) -> Cluster:
        """The cluster, not yet started. ``url``: address of the proxy in front of it."""
        return Cluster(home, variables=variables, description=None)

    def place(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The job as it is submitted to this engine."""
        return spec

    def supervisors(self, home: Path) -> dict[str, int]:
        """Pids of supervisors by the uid of their attempt."""
        return supervisors_in(home / "tasks", str(home))

    def unexplained_end(self, site: Site, code: int | None, uid: str, starts: int) -> str:
        """What is wrong with the end of an attempt that no exit, stop or fault explains; else empty."""
        if code == LOST:
            return "" if uid in site.killed_attempts else "was lost, though nothing killed its supervisor"
        if code == NOT_LAUNCHED:
            is_possible = not starts and site.had(*self.prevents_starts)
            return "" if is_possible else f"was not launched, and started {starts} times"
        return f"ended with {code}"

    def leftovers(self, cluster: Cluster) -> list[str]:
        """Leftovers of tasks other than processes of the home."""
        return []

    def close(self, cluster: Cluster) -> None:
        """Remove the leftovers of a failed run."""


def supervisors_in(tasks: Path, mark: str) -> dict[str, int]:
    """Pids of supervisors of these attempts, by uid, whose command lines have this text."""
    found = {}
    for path in tasks.glob("*/*/claim"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads(path.read_text())["pid"])
            # The command line shows that the pid was not reused.
            if not (path.parent / "exit.json").exists() and mark in _command_line(pid):
                found[path.parent.name] = pid
    return found


def _command_line(pid: int) -> str:
    return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
