"""Container engine of a campaign: podman runs the tasks, and its processes are killed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaos.engine import CampaignEngine
from chaos.schedule import CONTAINER_WEIGHTS
from chaos.site import Site
from pairuntime.supervisor import process_tree
from support.container_images import PLAIN, make
from support.external_services import install_podman
from support.server_fixture import Cluster

_PREFIX = "pai-"
_SETTINGS = """
engine: {{type: container, program: podman, images: refuse}}
storages:
  - {{name: home, type: own}}
  - {{name: ledger, type: mount, path: {ledger}}}
"""


class ContainerEngine(CampaignEngine):
    """podman for tasks with an image, processes for others."""

    name = "container"
    weights = CONTAINER_WEIGHTS
    # A start takes a second of processor time.
    clients = 4
    patience_s = 240.0
    killed_code = 137
    kills_programs = ("kill-container", "kill-container-client", "kill-conmon")
    termination_notices = (b"Terminated\n", b"Killed\n")
    prevents_starts = (*CampaignEngine.prevents_starts, *kills_programs)
    ends_commands = ("kill-supervisor", *kills_programs)

    def __init__(self) -> None:
        self.faults = {
            "kill-container": _kill_container,
            "kill-container-client": _kill_client,
            "kill-conmon": _kill_conmon,
        }
        self._ledger = Path()

    @contextlib.contextmanager
    def running(self, folder: Path) -> Iterator[None]:
        install_podman()
        make("podman", PLAIN)
        self._ledger = folder / "ledger"
        yield

    def cluster(self, home: Path, variables: dict[str, str], url: str) -> Cluster:
        (home / "cluster.yaml").write_text(_SETTINGS.format(ledger=self._ledger))
        return super().cluster(home, variables, url)

    def place(self, spec: dict[str, Any]) -> dict[str, Any]:
        spec["prerequisites"][0]["uri"] = PLAIN
        mounted = [{"name": "ledger", "mountPath": str(self._ledger)}]
        spec["extras"] = {**spec.get("extras", {}), "storages": mounted}
        return spec

    def leftovers(self, cluster: Cluster) -> list[str]:
        return [*_containers(cluster.home), *map(str, _processes_of_containers(cluster.home, "conmon"))]

    def close(self, cluster: Cluster) -> None:
        if names := _containers(cluster.home):
            subprocess.run(["podman", "rm", "--force", "--time=0", *names], capture_output=True, check=False)


def _containers(home: Path, *filters: str) -> list[str]:
    """Names of the cluster's containers, running or not."""
    cluster = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]
    words = [word for one in filters for word in ("--filter", one)]
    label = f"label=org.openpai.cluster={cluster}"
    command = ["podman", "ps", "--all", "--filter", label, *words, "--format", "{{.Names}}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return sorted(ran.stdout.split())


def _processes_of_containers(home: Path, program: str) -> dict[str, int]:
    """Pids of this program by the attempt that its container belongs to."""
    uids = {path.name for path in (home / "tasks").glob("*/*")}
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                uid = next((word[len(_PREFIX) :] for word in words if word.startswith(_PREFIX)), "")
                if uid in uids and Path(words[0]).name == program:
                    found[uid] = int(entry.name)
    return found


def _chosen(running: dict[str, int], size: float) -> tuple[str, int] | None:
    found = sorted(running.items())
    return found[int(size * len(found))] if found else None


def _kill_container(site: Site, size: float) -> None:
    running = _containers(site.cluster.home, "status=running")
    if running:
        name = running[int(size * len(running))]
        site.killed_programs.add(name.removeprefix(_PREFIX))
        subprocess.run(["podman", "kill", name], capture_output=True, check=False)


def _kill_client(site: Site, size: float) -> None:
    """SIGKILL of the client that waits for the container: a child of the supervisor."""
    clients = {
        uid: pid
        for uid, supervisor in site.engine.supervisors(site.cluster.home).items()
        for pid in process_tree.children(supervisor)
        if _is_client(pid)
    }
    _kill(site, _chosen(clients, size))


def _is_client(pid: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return Path(os.fsdecode(words[0])).name == "podman" and b"run" in words
    return False


def _kill_conmon(site: Site, size: float) -> None:
    """SIGKILL of the process that waits for the container's first one, and writes its exit status."""
    _kill(site, _chosen(_processes_of_containers(site.cluster.home, "conmon"), size))


def _kill(site: Site, chosen: tuple[str, int] | None) -> None:
    if chosen is not None:
        uid, pid = chosen
        site.killed_programs.add(uid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
