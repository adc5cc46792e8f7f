"""Options of a Slurm engine from the cluster's file, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paiprotocol.errors import ConfigError

CONTAINERS = ("podman", "apptainer", "enroot")
REASON_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class SlurmQueue:
    """Partition, account and QOS of a virtual cluster's jobs. Empty: Slurm's default."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    # Same path on every node, if it is shared.
    folder: Path
    # If not, tasks download their files and report over HTTP; on a node they work in ``node_folder``. There
    # storages are mounted where only root could mount at the requested paths.
    shared: bool = True
    node_folder: Path = Path("/tmp")
    default_queue: SlurmQueue = SlurmQueue()
    # By virtual cluster, where it differs.
    queues: Mapping[str, SlurmQueue] = field(default_factory=dict)
    # Name of GPUs in --gres.
    gres: str = "gpu"
    python: str = "python3"
    # Mounts storages for tasks: a Python of the nodes that has openpaisdk, with the extras of the storages.
    mount_python: str = "python3"
    # Memory of the supervisor per task, and once more for gangs: Slurm has one limit for everything.
    overhead_mb: int = 32
    # How images are run on the nodes; empty: not at all. Then the client's command line up to its verb, and
    # options after the verb.
    container: str = ""
    container_command: tuple[str, ...] = ()
    container_options: tuple[str, ...] = ()
    # Seconds between two squeue calls, while jobs are pending, and while all are running. As often as the
    # latter tasks report their usage, and callers of refresh_nodes get a new list.
    interval_s: float = 1.0
    steady_interval_s: float = 5.0
    # How long a file may take to appear on this machine after a node wrote it.
    file_lag_s: float = 3.0
    # How long the end of a task that Slurm ended waits for Slurm's reason.
    reason_timeout_s: float = REASON_TIMEOUT_S
    log_limit: int = 512 << 20
    log_segment: int = 64 << 20

    def queue_of(self, vc: str) -> SlurmQueue:
        return self.queues.get(vc, self.default_queue)


def options_of(section: Mapping[str, object], home: Path, name: str) -> SlurmOptions:
    """Options from the engine's section of the cluster's file; ``home`` is the cluster's home."""
    values: dict[str, Any] = dict(section)
    folder = home / Path(str(values.get("folder", name))).expanduser()
    container = str(values.get("container") or "")
    if container and container not in CONTAINERS:
        raise ConfigError(f"Images are run by {', '.join(CONTAINERS)}, not by {container}.")
    python = str(values.get("python", "python3"))
    default_queue = _queue(values, SlurmQueue())
    queues = {vc: _queue(queue or {}, default_queue) for vc, queue in (values.get("clusters") or {}).items()}
    return SlurmOptions(
        folder=folder,
        shared=bool(values.get("shared", True)),
        node_folder=Path(str(values.get("node-folder", "/tmp"))),
        default_queue=default_queue,
        queues=queues,
        gres=str(values.get("gres", "gpu")),
        python=python,
        mount_python=str(values.get("mount-python", python)),
        overhead_mb=int(values.get("overhead-mb", 32)),
        container=container,
        container_command=tuple(map(str, values.get("container-command", ()))),
        container_options=tuple(map(str, values.get("container-options", ()))),
        interval_s=float(values.get("interval", 1.0)),
        steady_interval_s=float(values.get("steady-interval", 5.0)),
        file_lag_s=float(values.get("file-lag", 3.0)),
    )


def _queue(section: Mapping[str, Any], default: SlurmQueue) -> SlurmQueue:
    return SlurmQueue(
        str(section.get("partition", default.partition)),
        str(section.get("account", default.account)),
        str(section.get("qos", default.qos)),
        tuple(map(str, section.get("options", default.options))),
    )
