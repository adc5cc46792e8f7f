"""Contract rig of the container engine, with podman or docker."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paicluster.engines.common.attempt_folder import path_of
from paicluster.engines.container import client_detection
from paicluster.engines.container.engine import ContainerEngine
from paicluster.engines.interface import Mount, TaskLaunch
from paicluster.engines.process import cgroups
from support.container_images import NO_SHELL, PLAIN, WITH_BASH, bring
from support.engine_node import NODE
from support.engine_rig import Elsewhere, block, kill_supervisors, running_with, supervisor_pid, task
from support.external_services import install_podman


class ContainerRig:
    node = NODE.name
    many = 5

    def __init__(self, folder: Path, kind: str, environment: Mapping[str, str] | None = None):
        """``environment``: variables of the container program, such as DOCKER_HOST."""
        if kind == "podman":
            install_podman()
        self.folder = folder
        self.home = folder / "home"
        self.kind = kind
        self._before = {name: os.environ.get(name) for name in environment or {}}
        os.environ.update(environment or {})
        self._elsewhere = Elsewhere()
        if kind == "podman" and os.geteuid() != 0:
            client_detection.prefer_overlay()  # before the images come: it chooses once
        for image in (PLAIN, WITH_BASH, NO_SHELL):
            bring(kind, os.environ.get("DOCKER_HOST", ""), image)
        # The detected client is shared by all tests.
        self._found = Path(tempfile.gettempdir()) / f"pai-test-{kind}-{os.getuid()}.json"
        (self.home / "containers").mkdir(parents=True)
        if self._found.exists():
            shutil.copy(self._found, self.home / "containers" / f"{kind}.json")

    def dress(self, task: TaskLaunch) -> TaskLaunch:
        seen = (*task.mounts, Mount(self.folder, str(self.folder)))
        return dataclasses.replace(task, image=task.image or WITH_BASH, mounts=seen)

    def bare(self, task: TaskLaunch) -> TaskLaunch | None:
        return dataclasses.replace(task, image=PLAIN)

    def without_limits(self) -> str:
        return "an ordinary user's podman cannot limit anything on cgroup v1" if os.geteuid() else ""

    def engine(self, **settings: Any) -> ContainerEngine:
        return ContainerEngine(
            self.home,
            NODE,
            tree_control=cgroups.PROC_ONLY,
            programs=(self.kind,),
            refuse_without=True,
            **settings,
        )

    def attempt(self, uid: str) -> Path:
        return path_of(self.home / "tasks", uid)

    def launch_elsewhere(self, gang: Sequence[TaskLaunch]) -> int:
        request = {"home": str(self.home), "kind": self.kind, "gang": [as_json(task) for task in gang]}
        return self._elsewhere.launch(Path(__file__).with_name("container_engine_program.py"), request)

    def make_unlaunchable(self, uid: str) -> None:
        block(self.attempt(uid))

    def unstartable(self, task: TaskLaunch) -> TaskLaunch:
        return dataclasses.replace(task, image=NO_SHELL)

    def supervisor(self, uid: str) -> int:
        return supervisor_pid(self.attempt(uid))

    def kill_supervisor(self, uid: str) -> None:
        os.kill(self.supervisor(uid), signal.SIGKILL)

    def leftovers(self, mark: str) -> list[str]:
        return running_with(mark)

    def containers(self, *filters: str) -> list[str]:
        """The names of those that are there, running or not."""
        arguments = [word for one in filters for word in ("--filter", one)]
        output = subprocess.run(
            [self.kind, "ps", "--all", *arguments, "--format", "{{.Names}}"],
            capture_output=True,
            text=True,
            check=True,
        )
        return output.stdout.split()

    def close(self) -> None:
        found = self.home / "containers" / f"{self.kind}.json"
        if found.exists() and not self._found.exists():
            shutil.copy(found, self._found)
        self._elsewhere.close()
        kill_supervisors(self.home)
        cluster = hashlib.sha256(str(self.home.resolve()).encode()).hexdigest()[:12]
        if names := self.containers(f"label=org.openpai.cluster={cluster}"):
            subprocess.run([self.kind, "rm", "--force", *names], capture_output=True, check=False)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def podman(*arguments: str) -> str:
    """Run podman; returns its output. It must succeed."""
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=True).stdout


def in_image(rig: ContainerRig, image: str, script: str, **fields: Any) -> TaskLaunch:
    return dataclasses.replace(task(rig, script, **fields), image=image)


def as_json(task: TaskLaunch) -> dict[str, Any]:
    output = dataclasses.asdict(task)
    output["mounts"] = [{**mount, "source": str(mount["source"])} for mount in output["mounts"]]
    return output
