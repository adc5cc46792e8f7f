"""Contract rig of the process engine, for each mechanism for process trees."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paicluster.engines.common.attempt_folder import path_of
from paicluster.engines.interface import TaskLaunch
from paicluster.engines.process import cgroup_limits, cgroups
from paicluster.engines.process.engine import ProcessEngine
from pairuntime.supervisor import process_tree
from support.engine_node import NODE
from support.engine_rig import (
    Elsewhere,
    appears,
    block,
    kill_if_there,
    kill_supervisors,
    missing,
    running_with,
    supervisor_pid,
)


class ProcessRig:
    node = NODE.name
    many = 100

    def __init__(self, home: Path, mode: str):
        self.home = home
        self.mode = mode
        self.tree_control = cgroups.choose(
            f"pai-test-{os.getpid()}-{time.monotonic_ns()}", (mode,), limiting=True
        )
        if self.tree_control.mode != mode:
            missing(f"a writable cgroup {mode} hierarchy")
        self._elsewhere = Elsewhere()

    def dress(self, task: TaskLaunch) -> TaskLaunch:
        return task

    def without_limits(self) -> str:
        name = f"pai-test-{os.getpid()}"
        lacks = cgroup_limits.choose(name, self.tree_control).missing
        for root in cgroup_limits._v1_parents().values():
            if (root / name).exists():
                (root / name).rmdir()
        return f"this machine cannot limit the {' and the '.join(lacks)}" if lacks else ""

    def bare(self, task: TaskLaunch) -> TaskLaunch | None:
        return None

    def engine(self, **settings: Any) -> ProcessEngine:
        return ProcessEngine(self.home, NODE, tree_control=self.tree_control, **settings)

    def folder(self, uid: str) -> Path:
        return path_of(self.home / "tasks", uid)

    def launch_elsewhere(self, gang: Sequence[TaskLaunch], *, uncommitted: bool = False) -> int:
        """``uncommitted``: prepared, and left waiting for the commit."""
        request = {
            "uncommitted": uncommitted,
            "home": str(self.home),
            "mode": self.tree_control.mode,
            "root": str(self.tree_control.root) if self.tree_control.root else None,
            "gang": [dataclasses.asdict(task) for task in gang],
        }
        return self._elsewhere.launch(Path(__file__).with_name("process_engine_program.py"), request)

    def make_unlaunchable(self, uid: str) -> None:
        block(self.folder(uid))

    def unstartable(self, task: TaskLaunch) -> TaskLaunch:
        # Longer than the kernel's limit of a single argument.
        return dataclasses.replace(task, environment={**task.environment, "HUGE": "x" * 200_000})

    def supervisor(self, uid: str) -> int:
        return supervisor_pid(self.folder(uid))

    def kill_supervisor(self, uid: str) -> None:
        os.kill(self.supervisor(uid), signal.SIGKILL)

    def leftovers(self, mark: str) -> list[str]:
        return running_with(mark)

    def cgroups_left(self) -> list[str]:
        return (
            [path.name for path in self.tree_control.root.iterdir() if path.is_dir()]
            if self.tree_control.root
            else []
        )

    def close(self) -> None:
        self._elsewhere.close()
        kill_supervisors(self.home)
        root = self.tree_control.root
        if root is not None and root.exists():
            for child in [*root.iterdir(), root]:
                if child.is_dir():
                    _remove_cgroup(child)


def _remove_cgroup(path: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            with contextlib.suppress(OSError):  # it has gone meanwhile
                for pid in (path / "cgroup.procs").read_text().split():
                    kill_if_there(int(pid))
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
        else:
            return


async def serving_zygote() -> int:
    """Our child that serves as one. It is there, but at first its name may not be, and then it rehearses."""
    found: list[int] = []

    def seen() -> bool:
        found[:] = [
            pid
            for pid in process_tree.children(os.getpid())
            if b"\0zygote\0" in Path(f"/proc/{pid}/cmdline").read_bytes() and _serves(pid)
        ]
        return bool(found)

    await appears(seen, "the zygote")
    return found[0]


def _serves(pid: int) -> bool:
    """Whether all its children are supervisors from now on: it has begun to ignore how they end."""
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    return bool(ignored >> (signal.SIGCHLD - 1) & 1)
