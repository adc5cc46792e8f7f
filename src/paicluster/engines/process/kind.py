"""Registration of the process engine."""

from __future__ import annotations

from paicluster.engines.engine_kind import EngineContext, EngineKind
from paicluster.engines.router import ReadableEngine
from paicluster.engines.setting_types import RESOURCES, Number
from paiprotocol.jobs.schema_nodes import Choice, Int, Node, Nullable

# Options of every engine that runs tasks on the server's machine.
LOCAL_OPTIONS: dict[str, Node] = {
    **{name: Nullable(node) for name, node in RESOURCES.items()},
    "grace": Number("Seconds between asking a task to stop and killing it."),
    "limits": Choice("off", "enforce", doc="Whether tasks are limited to the resources they request."),
    "processes": Int("Processes and threads of one task, at most, where limits are enforced.", minimum=1),
}

# The same in a new cluster's file.
LOCAL_SECTION = """\
  # cpus: null                            # cores to schedule; null: all of the machine
  # memory-mb: null
  # gpus: null
  grace: 10                             # seconds between SIGTERM and SIGKILL when a task is stopped
  limits: enforce                       # limit tasks to what they requested; or off
  # processes: 8192                       # processes and threads of one task, at most
"""
PROCESS_SECTION = f"""\
# Where tasks run: as processes on this machine. With `type: container`, each in its job's image.
engine:
  type: process
{LOCAL_SECTION}"""


def _build(context: EngineContext) -> ReadableEngine:
    from paicluster.engines.process.engine import DEFAULT_MAX_PROCESSES, ProcessEngine

    return ProcessEngine(
        context.home,
        context.node,
        grace_s=context.grace_s,
        enforce_limits=context.enforce_limits,
        max_processes=context.options.get("processes", DEFAULT_MAX_PROCESSES),
        accounts=context.accounts,
        ca_certificates=context.ca_certificates,
    )


PROCESS = EngineKind("process", LOCAL_OPTIONS, _build)
