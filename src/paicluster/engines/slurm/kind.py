"""Registration of the Slurm engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paicluster.engines.engine_kind import DetectedConfig, EngineContext, EngineKind
from paicluster.engines.router import ReadableEngine
from paicluster.engines.setting_types import NAME, Number
from paicluster.engines.slurm import sbatch_options
from paiprotocol.errors import ConfigError
from paiprotocol.jobs.schema_nodes import (
    Bool,
    Choice,
    Fields,
    Int,
    ListOf,
    MappingOf,
    Node,
    Nullable,
    Text,
)


class SbatchOption(Node):
    """An option of sbatch that the engine does not set itself."""

    expected = f"an option of sbatch by its long name, in one word such as {sbatch_options.EXAMPLE}"

    def accepts(self, value: Any) -> bool:
        name = sbatch_options.option_name(value) if isinstance(value, str) else ""
        return bool(name) and not sbatch_options.is_reserved(name)

    def suggest(self, value: Any) -> str:
        if isinstance(value, str) and sbatch_options.is_reserved(sbatch_options.option_name(value) or "-"):
            return "leave it out: the cluster sets this option itself"
        return ""


_SHARE: dict[str, Node] = {
    "partition": Text(),
    "account": Text(),
    "qos": Text(),
    "options": ListOf(SbatchOption(), "Further options for sbatch, each in one word."),
}

_OPTIONS: dict[str, Node] = {
    "folder": Text("A folder that is on every node under the same name.", pattern=r"\S.*", form="a path"),
    "shared": Bool("Whether the nodes see that folder; else tasks report over the network."),
    "node-folder": Text(
        "Where tasks then work on a node, and files for mounted storages are staged.",
        pattern=r"/.*",
        form="a path from /",
    ),
    **_SHARE,
    "clusters": MappingOf(Nullable(Fields(_SHARE)), "By virtual cluster, where it differs.", key=NAME),
    "gres": Text("What GPUs are called in --gres.", pattern=r"\S+", form="a name such as gpu or gpu:a100"),
    "python": Text("Python 3.6 or newer on the nodes.", pattern=r"\S.*", form="a command or a path"),
    "mount-python": Text(
        "Python on the nodes that has openpaisdk, to mount storages.",
        pattern=r"\S.*",
        form="a command or a path",
    ),
    "overhead-mb": Int("Memory for the supervisor of each task.", minimum=0),
    "container": Nullable(Choice("podman", "apptainer", "enroot", doc="What runs images on the nodes.")),
    "container-command": ListOf(Text(), "The container program, with arguments that come before its verb."),
    "container-options": ListOf(Text(), "Arguments that come after its verb."),
    "interval": Number("Minimum seconds between two queries of Slurm's queue."),
    # Usage that is older than a minute is not shown.
    "steady-interval": Number(
        "Seconds between two queries while all jobs run, between two reports of a task's usage and two looks "
        "of its supervisor at requests to stop, and the greatest age of the list of nodes.",
        minimum=0.1,
        maximum=30,
    ),
    "file-lag": Number("Seconds until a file that a node wrote is visible on this machine."),
}

# Which options a job may not set is checked by the engine: it depends on the account.
_JOB_OPTIONS = ListOf(
    Text(pattern=r"-\S.*", form="one option in one word, such as --constraint=a100"),
    "Options for sbatch, passed as they are.",
)


def _build(context: EngineContext) -> ReadableEngine:
    from paicluster.engines.slurm.engine import SlurmEngine
    from paicluster.engines.slurm.options import options_of

    options = options_of(context.options, context.cluster_home, context.name)
    if not options.shared and context.external_url is None:
        raise ConfigError(
            f"Tasks of the engine {context.name} report over the network, and external-url is not set.",
            hint="Give the address by which the nodes reach this server: external-url, under listen.",
        )
    return SlurmEngine(
        options,
        grace_s=context.grace_s,
        accounts=context.accounts,
        url=context.external_url or "",
        ca_certificates=context.ca_certificates,
    )


def _detect() -> DetectedConfig:
    from paicluster.engines.slurm.detect_config import detect

    return DetectedConfig(*detect())


def _check_options(options: Mapping[str, Any], home: Path, name: str) -> Sequence[str]:
    """What the sbatch of this machine rejects of the options of all virtual clusters."""
    from paicluster.engines.slurm.detect_config import validate_options
    from paicluster.engines.slurm.options import options_of

    parsed = options_of(options, home, name)
    problems = []
    for queue in dict.fromkeys((parsed.default_queue, *parsed.queues.values())):
        if queue.options and (error := validate_options(queue.options)):
            problems.append(f"sbatch on this machine rejects {' '.join(queue.options)}: {error}.")
    return problems


SLURM = EngineKind(
    "slurm",
    _OPTIONS,
    _build,
    schedules_itself=True,
    job_options=_JOB_OPTIONS,
    detect=_detect,
    init_help="configure it for the Slurm cluster of this machine",
    check_options=_check_options,
)
