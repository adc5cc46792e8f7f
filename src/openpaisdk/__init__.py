"""SDK: submit, follow and manage jobs on OpenPAI clusters.

Importing this package is cheap: each name below is loaded when it is first used.
"""

from __future__ import annotations

from openpaisdk._version import __version__

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the 5 ms that importing typing costs
if TYPE_CHECKING:
    from typing import Any

    from openpaisdk.binding.client import OpenPAIClient as OpenPAIClient
    from openpaisdk.binding.cluster import Cluster as Cluster
    from openpaisdk.binding.cluster_list import ClusterList as ClusterList
    from openpaisdk.binding.job import Job as Job
    from openpaisdk.errors import PaiError as PaiError

    __cluster_config_file__: str

_MODULES = {
    "Cluster": "binding.cluster",
    "ClusterList": "binding.cluster_list",
    "Job": "binding.job",
    "OpenPAIClient": "binding.client",
    "PaiError": "errors",
}

__all__ = ["Cluster", "ClusterList", "Job", "OpenPAIClient", "PaiError", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__cluster_config_file__":  # evaluated each time: it depends on the current folder
        from openpaisdk.config.clusters import ClusterRegistry

        return ClusterRegistry.file_path()
    if name in _MODULES:
        value = getattr(__import__(f"openpaisdk.{_MODULES[name]}", fromlist=[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'openpaisdk' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__cluster_config_file__"})


def in_job_container() -> bool:
    """Whether this program runs as a task of a job."""
    import os

    return bool(os.environ.get("PAI_CONTAINER_ID"))
