"""Registration of the process engine."""

from __future__ import annotations

from openpaisdk.protocol.schema_nodes import Choice, Int, Node, Nullable
from paicluster.config.field_types import RESOURCES, Number
from paicluster.engines.kind import EngineContext, EngineKind
from paicluster.engines.router import ReadableEngine

# Options of every engine that runs tasks on the server's machine.
LOCAL_OPTIONS: dict[str, Node] = {
    **{name: Nullable(node) for name, node in RESOURCES.items()},
    "grace": Number("Seconds between asking a task to stop and killing it."),
    "limits": Choice("off", "enforce", doc="Whether tasks are limited to the resources they request."),
    "processes": Int("Processes and threads of one task, at most, where limits are enforced.", minimum=1),
}


def _build(context: EngineContext) -> ReadableEngine:
    from paicluster.engines.process.engine import DEFAULT_MAX_PROCESSES, ProcessEngine

    return ProcessEngine(
        context.home,
        context.node,
        grace_s=context.grace_s,
        enforce_limits=context.enforce_limits,
        max_processes=context.options.get("processes", DEFAULT_MAX_PROCESSES),
        accounts=context.accounts,
        authority=context.authority,
    )


PROCESS = EngineKind("process", LOCAL_OPTIONS, _build)
