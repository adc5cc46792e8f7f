"""Contract rig of the Slurm engine."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paicluster.engines.container.client import Client
from paicluster.engines.interface import TaskLaunch
from paicluster.engines.slurm import runtime_archive
from paicluster.engines.slurm.engine import SlurmEngine
from support.container_images import PLAIN, bring
from support.engine_rig import Elsewhere, block, running_with, supervisor_pid
from support.runtime_copy import copy_runtime
from support.slurm_cluster import RealSlurm
from support.slurm_engine import engine_of


class SlurmRig:
    many = 30
    # Port for reports; None: tasks share a folder with the server.
    port: int | None = None

    def __init__(self, slurm: RealSlurm, home: Path, podman: Client | None = None):
        """``podman``: the nodes' command for images."""
        self.slurm = slurm
        self.node = slurm.nodes[0]
        self.home = home
        self._elsewhere = Elsewhere()
        self._podman: dict[str, Any] = {}
        if podman is not None:
            self._podman = {
                "container": "podman",
                "container_command": ("podman", *podman.options),
                "container_options": podman.run_options,
            }

    def engine(self, **limits: Any) -> SlurmEngine:
        # Slurm always enforces requests.
        limits.pop("enforce_limits", None)
        copy_runtime(self.home, runtime_archive.install)
        return engine_of(self.home, self.port, **{**self._podman, **limits})

    def folder(self, uid: str) -> Path:
        return self.home / "tasks" / uid[:2] / uid

    def gang(self, uid: str) -> Path:
        return self.home / "gangs" / uid[:2] / uid

    def launch_elsewhere(self, gang: Sequence[TaskLaunch]) -> int:
        request = {"home": str(self.home), "port": self.port}
        request["gang"] = [dataclasses.asdict(task) for task in gang]
        return self._elsewhere.launch(
            Path(__file__).with_name("slurm_engine_program.py"), request, self.slurm.environment
        )

    def make_unlaunchable(self, uid: str) -> None:
        block(self.folder(uid))

    def unstartable(self, task: TaskLaunch) -> TaskLaunch:
        # Longer than the kernel's limit of one argument.
        return dataclasses.replace(task, environment={**task.environment, "HUGE": "x" * 200_000})

    def kill_supervisor(self, uid: str) -> None:
        os.kill(supervisor_pid(self.folder(uid)), signal.SIGKILL)

    def leftovers(self, mark: str) -> list[str]:
        return running_with(mark)

    def dress(self, task: TaskLaunch) -> TaskLaunch:
        # Without a request Slurm would allocate all memory of the node.
        return task if task.memory_mb else dataclasses.replace(task, memory_mb=40)

    def without_limits(self) -> str:
        return "" if self.slurm.cgroups else "Slurm has no cgroups here"

    def bare(self, task: TaskLaunch) -> TaskLaunch | None:
        bring("podman", "", PLAIN)
        return dataclasses.replace(task, image=PLAIN, memory_mb=200)

    def close(self) -> None:
        self._elsewhere.close()
        if self.slurm.jobs():
            self.slurm.ask("scancel", "-u", "root")
