"""Detection for `paicluster init --slurm`: the Slurm cluster of this machine as sections of cluster.yaml."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from paiprotocol.errors import ConfigError

_COMMAND_TIMEOUT_S = 30
_NOT_STRINGS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    default: bool
    nodes: int
    cpus: int

    @property
    def virtual_cluster(self) -> str:
        """Name of its virtual cluster: letters, digits and _ only."""
        return re.sub(r"[^A-Za-z0-9_]", "_", self.name)


def detect() -> tuple[str, str]:
    """The sections ``engine`` and ``virtual-clusters``, each as text of a YAML file."""
    config = _fields_by_line(_run("scontrol", "show", "config"))
    partitions = read_partitions(_run("scontrol", "--oneliner", "show", "partitions").splitlines())
    if not partitions:
        raise ConfigError("Slurm has no partitions here.", hint="Check: sinfo")
    gpus = "gpu" in config.get("GresTypes", "").split(",")
    return sections(config.get("ClusterName", ""), partitions, gpus=gpus)


def validate_options(options: Sequence[str]) -> str:
    """The error of this machine's sbatch about these options; empty: none, or sbatch is not usable."""
    try:
        # With --help sbatch parses all options and contacts no server.
        done = subprocess.run(
            ["sbatch", *options, "--help"],
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(
        r"unrecognized option.*|option .* requires an argument|.*\binvalid\b.*", done.stderr, re.I
    )
    return "" if done.returncode == 0 or match is None else re.sub(r"^sbatch: (error: )?", "", match[0])


def sections(cluster: str, partitions: Sequence[Partition], *, gpus: bool) -> tuple[str, str]:
    default = next((one for one in partitions if one.default), partitions[0])
    engine = [
        f"# Where tasks run: on the Slurm cluster {cluster}.",
        "engine:",
        "  type: slurm",
        "  folder: slurm                         # same path on every node: a shared file system",
        "  # shared: true                          # false: not on the nodes; needs external-url, above",
        f"  partition: {_quote(default.name)}",
        "  # account: my-account                   # --account and --qos of all jobs",
        "  # qos: normal",
        "  # options: [--exclude=node7]            # any other options of sbatch, each one string",
        f"  {'' if gpus else '# '}gres: gpu                             # name of GPUs in --gres",
        "  # python: python3                       # Python 3.6 or newer on the nodes",
        "  # container: podman                     # how images are run: podman, apptainer or enroot",
    ]
    others = [partition for partition in partitions if partition is not default]
    clusters = ""
    if others:
        engine.append("  clusters:                             # by virtual cluster, where it differs")
        names = _names(others)
        engine += [
            f"    {_quote(name)}: {{partition: {_quote(partition.name)}}}"
            for name, partition in zip(names, others, strict=True)
        ]
        clusters = "".join(
            f"\n  {_quote(name)}: {{engine: slurm}}".ljust(40)
            + f"# {partition.nodes} nodes with {partition.cpus} cores"
            for name, partition in zip(names, others, strict=True)
        )
    return "\n".join(engine) + "\n", clusters


def _quote(name: str) -> str:
    """A YAML string: quoted if YAML would read it as a boolean, null or a number."""
    return (
        name if re.fullmatch(r"[A-Za-z_][\w.-]*", name) and name.lower() not in _NOT_STRINGS else f'"{name}"'
    )


def _names(partitions: Sequence[Partition]) -> list[str]:
    """A virtual cluster name for each: unique, and not `default`."""
    names: list[str] = []
    for partition in partitions:
        name, number = partition.virtual_cluster, 2
        while name in (*names, "default"):
            name, number = f"{partition.virtual_cluster}_{number}", number + 1
        names.append(name)
    return names


def read_partitions(lines: Sequence[str]) -> list[Partition]:
    partitions = []
    for line in lines:
        fields = dict(field.split("=", 1) for field in line.split() if "=" in field)
        if fields.get("PartitionName") and fields.get("State", "UP") == "UP":
            numbers = [
                int(fields[key]) if fields.get(key, "").isdigit() else 0
                for key in ("TotalNodes", "TotalCPUs")
            ]
            partitions.append(Partition(fields["PartitionName"], fields.get("Default") == "YES", *numbers))
    return partitions


def _fields_by_line(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def _run(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise ConfigError(
            f"The command {command[0]} is not installed.",
            hint="Run this on a login node of the Slurm cluster.",
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError("Slurm does not respond.", hint="Check: scontrol ping") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ConfigError(f"Slurm does not respond: {lines[0] if lines else done.returncode}")
    return done.stdout
