"""Contract rig of the Kubernetes engine."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paicluster.engines.common import runtime_install
from paicluster.engines.interface import TaskLaunch
from support.container_images import PLAIN
from support.engine_rig import Elsewhere, block, kill_if_there, running_with
from support.kubernetes_engine import ReportedEngine
from support.ports import free_ports
from support.runtime_copy import copy_runtime


class KubernetesRig:
    many = 10

    def __init__(
        self,
        home: Path,
        kubeconfig: Path,
        node: str,
        host: str = "127.0.0.1",
        shared: tuple[Path, str] | None = None,
    ):
        """``host``: address of this machine for pods. ``node``: a name of a node.

        ``shared``: a folder that tasks see under its own name, and its claim; None: they see it anyway.
        """
        self._shared = shared
        self.home = home
        self.node = node
        self._kubeconfig = kubeconfig
        self._host = host
        # The same for all engines of a test: pods have the address.
        self._port = free_ports(1)[0]
        self._elsewhere = Elsewhere()

    def engine(self, **limits: Any) -> ReportedEngine:
        # Kubernetes always enforces requests.
        limits.pop("enforce_limits", None)
        copy_runtime(self.home, runtime_install.install)
        return ReportedEngine(self.home, self._kubeconfig, self._host, self._port, self._shared, **limits)

    def folder(self, uid: str) -> Path:
        return self.home / "tasks" / uid[:2] / uid

    def launch_elsewhere(self, gang: Sequence[TaskLaunch]) -> int:
        request = {
            "home": str(self.home),
            "kubeconfig": str(self._kubeconfig),
            "host": self._host,
            "port": self._port,
            "shared": None if self._shared is None else [str(self._shared[0]), self._shared[1]],
            "gang": [dataclasses.asdict(task) for task in gang],
        }
        copy_runtime(self.home, runtime_install.install)
        return self._elsewhere.launch(Path(__file__).with_name("kubernetes_engine_program.py"), request)

    def make_unlaunchable(self, uid: str) -> None:
        block(self.folder(uid))

    def unstartable(self, task: TaskLaunch) -> TaskLaunch:
        # Longer than the kernel's limit of one argument.
        return dataclasses.replace(task, environment={**task.environment, "HUGE": "x" * 200_000})

    def kill_supervisor(self, uid: str) -> None:
        """The runtime container: the supervisor is a fork in it. All end with its first process."""
        for pid in _with_variable("PAI_POD_ATTEMPT", uid):
            kill_if_there(pid)

    def leftovers(self, mark: str) -> list[str]:
        # The runtime has the variables of its task in a file, not in its own environment.
        return running_with(mark)

    def dress(self, task: TaskLaunch) -> TaskLaunch:
        # Of gangs with more tasks than this machine has cores all must get a node.
        return dataclasses.replace(task, cpu=0) if task.cpu == 1 else task

    def without_limits(self) -> str:
        return "" if self._shared is not None else "pods made of namespaces have no limits"

    def bare(self, task: TaskLaunch) -> TaskLaunch | None:
        return dataclasses.replace(task, image=PLAIN)

    def close(self) -> None:
        self._elsewhere.close()


def _with_variable(name: str, value: str) -> list[int]:
    wanted = f"{name}={value}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
            except OSError:
                continue
    return found
