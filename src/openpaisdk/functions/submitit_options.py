"""Options of submitit's executors as options of our jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openpaisdk.functions.function_job import OPTIONS
from openpaisdk.functions.usage_errors import UnknownParameter, WrongParameter

_RENAMED = {
    "array_parallelism": "limit",
    "cpus_per_task": "cpu",
    "gpus_per_task": "gpu",
    "job_name": "name",
    "ntasks_per_node": "tasks_per_node",
    "num_gpus": "gpus_per_node",
    "partition": "virtual_cluster",
    "time": "timeout_min",
}
"""Names of submitit and of Slurm for options that have another name here."""
_PREFIXES = ("slurm_", "local_", "debug_")
_WITHOUT_EFFECT = frozenset(
    (
        *("account", "additional_parameters", "comment", "constraint", "cpus_per_gpu", "dependency"),
        *("exclude", "exclusive", "gres", "hold", "mail_type", "mail_user", "max_num_timeout"),
        *("mem_per_cpu", "mem_per_gpu", "nodelist", "open_mode", "qos", "setup", "signal_delay_s"),
        *("srun_args", "teardown", "use_srun", "visible_gpus", "wckey"),
    )
)
"""Options of Slurm or of this machine that have no meaning on a cluster of ours."""
_OWN = OPTIONS | {"name", "pip", "limit", "max_pickle_size_gb", "stderr_to_stdout"}


def job_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Our options for those given, which have our names or submitit's.

    A name with a prefix (``slurm_time``) wins over one without (``timeout_min``).
    """
    given = {key: value for key, value in parameters.items() if value is not None}
    plain: dict[str, Any] = {}
    for is_prefixed in (False, True):
        for key, value in given.items():
            name = _without_prefix(key)
            if (name != key) == is_prefixed:
                plain[_RENAMED.get(name, name)] = value
    options: dict[str, Any] = {}
    unknown: list[str] = []
    for key, value in plain.items():
        if key == "timeout_min":
            options["timeout"] = _number(key, value) * 60
        elif key == "mem_gb":
            options["mem"] = f"{int(_number(key, value) * 1024)}m"
        elif key == "mem":
            options["mem"] = str(value)
        elif key in ("nodes", "tasks_per_node"):
            # The tasks that a job has are then the product of both.
            options |= {key: int(_number(key, value)), "instances": plain.get("instances")}
        elif key in ("gpus_per_node", "gpu"):
            options |= {"gpu": None, key: _count_of_gpus(key, value)}
        elif key in _OWN:
            options[key] = value
        elif key not in _WITHOUT_EFFECT:
            unknown.append(key)
    if unknown:
        raise UnknownParameter(
            f"Jobs have no parameter {', '.join(map(repr, unknown))}.",
            hint="Those of submitit that are understood: timeout_min, mem_gb, nodes, tasks_per_node, "
            "gpus_per_node, cpus_per_task, name, stderr_to_stdout, slurm_partition, slurm_array_parallelism.",
        )
    return options


def _number(key: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise WrongParameter(f"{key} is a number, not {value!r}.") from None


def _count_of_gpus(key: str, value: Any) -> int:
    """A number of GPUs, also with their kind as Slurm has it (``volta:1``), which is without effect."""
    return int(_number(key, str(value).rpartition(":")[2]))


def _without_prefix(key: str) -> str:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key[len(prefix) :]
    return key
