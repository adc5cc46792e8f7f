"""Options of submitit's executors as options of our jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openpaisdk.errors import UsageError
from openpaisdk.functions.function_job import OPTIONS

_RENAMED = {
    "cpus_per_task": "cpu",
    "job_name": "name",
    "num_gpus": "gpu",
    "partition": "virtual_cluster",
    "array_parallelism": "limit",
}
"""Names of submitit for options that we have, too."""
_PREFIXES = ("slurm_", "local_", "debug_")
_WITHOUT_EFFECT = frozenset(
    (
        *(
            "account",
            "additional_parameters",
            "comment",
            "constraint",
            "cpus_per_gpu",
            "dependency",
            "exclude",
        ),
        *("exclusive", "gres", "mail_type", "mail_user", "max_num_timeout", "mem_per_cpu", "mem_per_gpu"),
        *("nodelist", "qos", "setup", "signal_delay_s", "srun_args", "stderr_to_stdout", "use_srun"),
        *("visible_gpus", "wckey"),
    )
)
"""Options of Slurm or of this machine that have no meaning on a cluster of ours."""
_OWN = OPTIONS | {"name", "pip", "limit"}


def job_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Our options for those given, which have our names or submitit's."""
    plain: dict[str, Any] = {}
    for key, value in parameters.items():
        if value is not None:
            plain[_without_prefix(key)] = value
    options: dict[str, Any] = {}
    tasks = int(plain.pop("nodes", 1)) * int(
        per_node := plain.pop("tasks_per_node", None) or plain.pop("ntasks_per_node", 1)
    )
    if tasks > 1:
        options["instances"] = tasks
    for key, value in plain.items():
        if key in ("timeout_min", "time"):
            options["timeout"] = float(value) * 60
        elif key == "mem_gb":
            options["mem"] = f"{int(float(value) * 1024)}m"
        elif key == "mem":
            options["mem"] = str(value)
        elif key == "gpus_per_node":
            options["gpu"] = -(-int(value) // int(per_node))
        elif key == "gpus_per_task":
            options["gpu"] = int(value)
        elif key in _RENAMED:
            options[_RENAMED[key]] = value
        elif key in _OWN:
            options[key] = value
        elif key not in _WITHOUT_EFFECT:
            raise UsageError(
                f"Jobs have no parameter {key!r}.",
                hint="Those of submitit that are understood: timeout_min, mem_gb, nodes, tasks_per_node, "
                "gpus_per_node, cpus_per_task, name, slurm_partition, slurm_array_parallelism.",
            )
    return options


def _without_prefix(key: str) -> str:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key[len(prefix) :]
    return key
