"""SDK: submit, follow and manage jobs on OpenPAI clusters.

Importing this package is cheap: each name below is loaded when it is first used.
"""

from __future__ import annotations

import sys

from paiprotocol._version import __version__

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the 5 ms that importing typing costs
if TYPE_CHECKING:
    from typing import Any

    from openpaisdk.binding.client import OpenPAIClient as OpenPAIClient
    from openpaisdk.binding.cluster import Cluster as Cluster
    from openpaisdk.binding.cluster_list import ClusterList as ClusterList
    from openpaisdk.binding.job import Job as Job
    from openpaisdk.functions.executor import Executor as Executor
    from openpaisdk.functions.remote_function import map_items as map
    from openpaisdk.functions.remote_function import remote as remote
    from openpaisdk.functions.remote_function import submit as submit
    from openpaisdk.notebook.notebook_submission import submit_notebook as submit_notebook
    from paiprotocol.errors import PaiError as PaiError

    __cluster_config_file__: str

_MODULES = {
    "Cluster": "binding.cluster",
    "ClusterList": "binding.cluster_list",
    "Job": "binding.job",
    "OpenPAIClient": "binding.client",
    "PaiError": "errors",
    "Executor": "functions.executor",
    "map": "functions.remote_function",
    "remote": "functions.remote_function",
    "submit": "functions.remote_function",
    "submit_notebook": "notebook.notebook_submission",
}

__all__ = [
    "Cluster",
    "ClusterList",
    "Executor",
    "Job",
    "OpenPAIClient",
    "PaiError",
    "__version__",
    "map",
    "remote",
    "submit",
    "submit_notebook",
]

if "pairuntime" in sys.modules:
    # A call of a function runs in the runtime of its cluster. What that one lacks, if it is older, is here.
    _own_runtime = __path__[0].removesuffix("openpaisdk") + "pairuntime"
    if _own_runtime not in sys.modules["pairuntime"].__path__:
        sys.modules["pairuntime"].__path__.append(_own_runtime)


def __getattr__(name: str) -> Any:
    if name == "__cluster_config_file__":  # evaluated each time: it depends on the current folder
        from openpaisdk.config.clusters import ClusterRegistry

        return ClusterRegistry.file_path()
    if name in _MODULES:
        attribute = "map_items" if name == "map" else name
        value = getattr(__import__(f"openpaisdk.{_MODULES[name]}", fromlist=[attribute]), attribute)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'openpaisdk' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__cluster_config_file__"})


def in_job_container() -> bool:
    """Whether this program runs as a task of a job."""
    import os

    return bool(os.environ.get("PAI_CONTAINER_ID"))


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext openpaisdk``: the magics ``%pai`` and ``%%pai``, and ``submit_notebook``."""
    from openpaisdk.notebook.magics import PaiMagics
    from openpaisdk.notebook.notebook_submission import submit_notebook

    shell.register_magics(PaiMagics)
    shell.user_ns.setdefault("submit_notebook", submit_notebook)
