"""Slurm engine of a campaign: a real Slurm of three nodes, whose daemons and nodes fail."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos.engine import LOST, NOT_LAUNCHED, CampaignEngine, supervisors_in
from chaos.schedule import SLURM_WEIGHTS
from chaos.site import Site
from support.server_fixture import Cluster
from support.slurm_cluster import RealSlurm, running_slurm

_NODE_LOST = -1001
_DOWN_MAX_S = 3.0
# Longer than the time after which Slurm sets a node DOWN (`SlurmdTimeout`).
_NODE_DOWN_MAX_S = 12.0
_PAUSE_MAX_S = 10.0
_DRAIN_MAX_S = 6.0
_SETTINGS = """
engine:
  type: slurm
  folder: slurm
  partition: main
  file-lag: 0.5
  interval: 0.5
  steady-interval: 1
"""
# Tasks reach the server through the proxy, too.
_OVER_HTTP = """
  shared: false
  node-folder: {node_folder}
listen: {{external-url: "{url}"}}
"""
_CONTROLLER = ("kill-slurmctld", "stop-slurmctld", "pause-slurmctld", "kill-munge")
_NODES = ("kill-slurmd", "kill-node")


class SlurmEngine(CampaignEngine):
    """Slurm only: every task runs on one of its nodes."""

    name = "slurm"
    weights = SLURM_WEIGHTS
    clients = 4
    # Slurm tries a job that its node did not accept again after two minutes.
    patience_s = 300.0
    lost_codes = frozenset((LOST, NOT_LAUNCHED, _NODE_LOST))
    ends_commands = ("kill-supervisor", *_CONTROLLER, *_NODES)
    prevents_starts = ("fill-disk", *_CONTROLLER, *_NODES)

    def __init__(self) -> None:
        self._slurm: RealSlurm

        def on_slurm(fault: Callable[[RealSlurm, float], None]) -> Callable[[Site, float], None]:
            return lambda site, size: fault(self._slurm, size)

        self.faults = {
            "kill-slurmctld": on_slurm(_kill_controller),
            "stop-slurmctld": on_slurm(_stop_controller),
            "pause-slurmctld": on_slurm(_pause_controller),
            "kill-slurmd": on_slurm(_kill_slurmd),
            "kill-node": on_slurm(_kill_node),
            "kill-munge": on_slurm(_kill_munge),
            "drain-node": on_slurm(_drain_node),
        }

    @contextlib.contextmanager
    def running(self, folder: Path) -> Iterator[None]:
        with running_slurm() as self._slurm:
            try:
                yield
            finally:
                shutil.copytree(self._slurm.folder / "log", folder / "slurm-log", dirs_exist_ok=True)

    def cluster(self, home: Path, variables: dict[str, str], url: str) -> Cluster:
        (home / "cluster.yaml").write_text(_SETTINGS)
        return self._cluster(home, variables)

    def _cluster(self, home: Path, variables: dict[str, str]) -> Cluster:
        variables = {**variables, "SLURM_CONF": str(self._slurm.conf)}
        return Cluster(home, ("--embedded",), variables=variables, description=None)

    def supervisors(self, home: Path) -> dict[str, int]:
        return supervisors_in(home / "slurm/tasks", str(home))

    def unexplained_end(self, site: Site, code: int | None, uid: str, starts: int) -> str:
        if code == _NODE_LOST:
            return "" if site.had(*_NODES) else "was lost with its node, though no node failed"
        if code == LOST and site.had("kill-slurmctld", "kill-node"):
            return ""
        return super().unexplained_end(site, code, uid, starts)

    def leftovers(self, cluster: Cluster) -> list[str]:
        return self._slurm.jobs()


class SlurmOverHttpEngine(SlurmEngine):
    """The same without a shared folder: tasks download what they need and report over HTTP."""

    name = "slurm-over-http"

    @contextlib.contextmanager
    def running(self, folder: Path) -> Iterator[None]:
        self._node_folder = folder / "node"
        self._node_folder.mkdir()
        self._node_folder.chmod(0o1777)
        with super().running(folder):
            yield

    def cluster(self, home: Path, variables: dict[str, str], url: str) -> Cluster:
        more = _OVER_HTTP.format(node_folder=self._node_folder, url=url)
        (home / "cluster.yaml").write_text(_SETTINGS + more.lstrip("\n"))
        return self._cluster(home, variables)

    def supervisors(self, home: Path) -> dict[str, int]:
        return supervisors_in(home / "slurm/tasks", str(self._node_folder))

    def leftovers(self, cluster: Cluster) -> list[str]:
        return [*super().leftovers(cluster), *(path.name for path in self._node_folder.iterdir())]


def _kill_controller(slurm: RealSlurm, size: float) -> None:
    """State that slurmctld had not yet written is lost."""
    slurm.kill_controller()
    time.sleep(size * _DOWN_MAX_S)
    slurm.start_controller()


def _stop_controller(slurm: RealSlurm, size: float) -> None:
    slurm.kill_controller(signal.SIGTERM)
    time.sleep(size * _DOWN_MAX_S)
    slurm.start_controller()


def _pause_controller(slurm: RealSlurm, size: float) -> None:
    with slurm.paused_controller():
        time.sleep(size * _PAUSE_MAX_S)


def _kill_slurmd(slurm: RealSlurm, size: float) -> None:
    """The tasks of the node go on. Slurm may set the node DOWN before slurmd is back."""
    node = _node(slurm, size)
    slurm.kill_slurmd(node)
    time.sleep(size * len(slurm.nodes) % 1 * _NODE_DOWN_MAX_S)
    slurm.start_node(node)
    slurm.resume(node)


def _kill_node(slurm: RealSlurm, size: float) -> None:
    node = _node(slurm, size)
    slurm.kill_node(node)
    time.sleep(size * len(slurm.nodes) % 1 * _DOWN_MAX_S)
    slurm.start_node(node)
    slurm.resume(node)


def _kill_munge(slurm: RealSlurm, size: float) -> None:
    """Authentication between the commands and daemons of Slurm fails."""
    slurm.kill_munge()
    time.sleep(size * _DOWN_MAX_S)
    slurm.start_munge()


def _drain_node(slurm: RealSlurm, size: float) -> None:
    """The node finishes its jobs, and gets no new ones."""
    node = _node(slurm, size)
    slurm.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=maintenance")
    time.sleep(size * len(slurm.nodes) % 1 * _DRAIN_MAX_S)
    slurm.resume(node)


def _node(slurm: RealSlurm, size: float) -> str:
    return slurm.nodes[int(size * len(slurm.nodes))]
