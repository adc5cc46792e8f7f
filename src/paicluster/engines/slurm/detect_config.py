"""What `paicluster init --slurm` writes: the Slurm cluster of this machine, for the cluster's file."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from openpaisdk.errors import ConfigError

_COMMAND_TIMEOUT_S = 30
_NO_TEXTS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    default: bool
    nodes: int
    cpus: int

    @property
    def virtual_cluster(self) -> str:
        """The name of a virtual cluster has letters, digits and _ only."""
        return re.sub(r"[^A-Za-z0-9_]", "_", self.name)


def detect() -> tuple[str, str]:
    """The sections ``engine`` and ``virtual-clusters``, each as text of a YAML file."""
    config = _fields_by_line(_ask("scontrol", "show", "config"))
    partitions = read_partitions(_ask("scontrol", "--oneliner", "show", "partitions").splitlines())
    if not partitions:
        raise ConfigError("Slurm has no partitions here.", hint="Look at: sinfo")
    gpus = "gpu" in config.get("GresTypes", "").split(",")
    return sections(config.get("ClusterName", ""), partitions, gpus=gpus)


def validate_options(options: Sequence[str]) -> str:
    """What the sbatch of this machine has against these options; empty: nothing, or it cannot say."""
    try:
        # It reads all before it helps, and asks nobody.
        done = subprocess.run(
            ["sbatch", *options, "--help"],
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(
        r"unrecognized option.*|option .* requires an argument|.*\binvalid\b.*", done.stderr, re.I
    )
    return "" if done.returncode == 0 or found is None else re.sub(r"^sbatch: (error: )?", "", found[0])


def sections(cluster: str, partitions: Sequence[Partition], *, gpus: bool) -> tuple[str, str]:
    usual = next((one for one in partitions if one.default), partitions[0])
    engine = [
        f"# Where tasks run: on the Slurm cluster {cluster}.",
        "engine:",
        "  type: slurm",
        "  folder: slurm                         # on every node under the same name: a shared file system",
        "  # shared: true                          # false: nodes do not see it; needs external-url, above",
        f"  partition: {_word(usual.name)}",
        "  # account: my-account                   # --account and --qos of all jobs",
        "  # qos: normal",
        "  # options: [--exclude=node7]            # any other options of sbatch, each in one word",
        f"  {'' if gpus else '# '}gres: gpu                             # what GPUs are called in --gres",
        "  # python: python3                       # Python 3.6 or newer on the nodes",
        "  # container: podman                     # what runs images there: podman, apptainer or enroot",
    ]
    others = [one for one in partitions if one is not usual]
    clusters = ""
    if others:
        engine.append("  clusters:                             # by virtual cluster, where it differs")
        names = _names(others)
        engine += [
            f"    {_word(name)}: {{partition: {_word(one.name)}}}"
            for name, one in zip(names, others, strict=True)
        ]
        clusters = "".join(
            f"\n  {_word(name)}: {{engine: slurm}}".ljust(40) + f"# {one.nodes} nodes with {one.cpus} cores"
            for name, one in zip(names, others, strict=True)
        )
    return "\n".join(engine) + "\n", clusters


def _word(name: str) -> str:
    """As YAML takes it for a text: on, null and 7 are something else to it."""
    return name if re.fullmatch(r"[A-Za-z_][\w.-]*", name) and name.lower() not in _NO_TEXTS else f'"{name}"'


def _names(partitions: Sequence[Partition]) -> list[str]:
    """One for each, none twice and none that is the usual virtual cluster's."""
    names: list[str] = []
    for one in partitions:
        name, number = one.virtual_cluster, 2
        while name in (*names, "default"):
            name, number = f"{one.virtual_cluster}_{number}", number + 1
        names.append(name)
    return names


def read_partitions(lines: Sequence[str]) -> list[Partition]:
    found = []
    for line in lines:
        said = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if said.get("PartitionName") and said.get("State", "UP") == "UP":
            numbers = [
                int(said[key]) if said.get(key, "").isdigit() else 0 for key in ("TotalNodes", "TotalCPUs")
            ]
            found.append(Partition(said["PartitionName"], said.get("Default") == "YES", *numbers))
    return found


def _fields_by_line(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def _ask(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise ConfigError(
            f"The command {words[0]} is not here.", hint="Run this on a login node of the Slurm cluster."
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError("Slurm does not answer.", hint="Look at: scontrol ping") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise ConfigError(f"Slurm does not answer: {said[0] if said else done.returncode}")
    return done.stdout
