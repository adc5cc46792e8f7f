"""A cluster on a real Slurm, and its jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.server_fixture import Cluster, job
from support.slurm_cluster import RealSlurm, eventually

SETTINGS = """
engines:
  - type: process
  - type: slurm
    folder: {shared}
    file-lag: 0.5
    interval: 0.5
    steady-interval: 1
    clusters:
      low: {{partition: low}}
      short: {{partition: short}}
virtual-clusters:
  slurm: {{engine: slurm}}
  low: {{engine: slurm}}
  short: {{engine: slurm}}
"""


def over_slurm(name: str, *commands: str, vc: str = "slurm", **more: Any) -> dict[str, Any]:
    return job(name, *commands, defaults={"virtualCluster": vc}, **more)


def make(folder: Path, slurm: RealSlurm, *, impatient: bool = False) -> Cluster:
    """``impatient``: its commands soon give up a controller that is down."""
    home = folder / "home"
    home.mkdir(parents=True)
    (home / "cluster.yaml").write_text(SETTINGS.format(shared=folder / "shared"))
    conf = slurm.impatient_conf if impatient else slurm.conf
    return Cluster(home, ("--embedded",), variables={"SLURM_CONF": str(conf)})


def events(cluster: Cluster, name: str) -> str:
    return "\n".join(f"{one['reason']}: {one['message']}" for one in cluster.events(name))


def says(cluster: Cluster, name: str, words: str) -> None:
    eventually(lambda: words in events(cluster, name), f"{words!r} among the events of {name}")
