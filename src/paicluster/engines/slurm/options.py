"""What the cluster's file says about a Slurm engine, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openpaisdk.errors import ConfigError

CONTAINERS = ("podman", "apptainer", "enroot")


@dataclass(frozen=True, slots=True)
class Share:
    """Where the jobs of a virtual cluster go. Empty: as Slurm decides."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    # On every node under the same name, if it is shared.
    folder: Path
    # Else tasks fetch what they need over the network, and report so; on a node they work in this folder.
    shared: bool = True
    node_folder: Path = Path("/tmp")
    usual: Share = Share()
    # By virtual cluster, where it differs.
    shares: Mapping[str, Share] = field(default_factory=dict)
    # What GPUs are called in --gres.
    gres: str = "gpu"
    python: str = "python3"
    # What our own part takes beside each task, and once more for several: Slurm holds all to one limit.
    overhead_mb: int = 32
    # How images are run on the nodes; empty: not at all. Then the program with words that come before its
    # verb, and words that come after.
    container: str = ""
    container_command: tuple[str, ...] = ()
    container_options: tuple[str, ...] = ()
    # Seconds between two questions about all jobs, while some wait, and while they merely run.
    interval_s: float = 1.0
    calm_interval_s: float = 5.0
    # How long a file may take to appear on this machine after a node wrote it.
    file_lag_s: float = 3.0
    log_limit: int = 512 << 20
    log_segment: int = 64 << 20

    def share(self, vc: str) -> Share:
        return self.shares.get(vc, self.usual)


def options_of(said: Mapping[str, object], home: Path, name: str) -> SlurmOptions:
    """From the cluster's file; ``home`` is where the cluster's own files are."""
    given: dict[str, Any] = dict(said)
    folder = home / Path(str(given.get("folder", name))).expanduser()
    container = str(given.get("container") or "")
    if container and container not in CONTAINERS:
        raise ConfigError(f"Images are run by {', '.join(CONTAINERS)}, not by {container}.")
    usual = _share(given, Share())
    shares = {vc: _share(one or {}, usual) for vc, one in (given.get("clusters") or {}).items()}
    return SlurmOptions(
        folder=folder,
        shared=bool(given.get("shared", True)),
        node_folder=Path(str(given.get("node-folder", "/tmp"))),
        usual=usual,
        shares=shares,
        gres=str(given.get("gres", "gpu")),
        python=str(given.get("python", "python3")),
        overhead_mb=int(given.get("overhead-mb", 32)),
        container=container,
        container_command=tuple(map(str, given.get("container-command", ()))),
        container_options=tuple(map(str, given.get("container-options", ()))),
        interval_s=float(given.get("interval", 1.0)),
        file_lag_s=float(given.get("file-lag", 3.0)),
    )


def _share(said: Mapping[str, Any], usual: Share) -> Share:
    return Share(
        str(said.get("partition", usual.partition)),
        str(said.get("account", usual.account)),
        str(said.get("qos", usual.qos)),
        tuple(map(str, said.get("options", usual.options))),
    )
