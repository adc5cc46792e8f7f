"""Python functions as jobs: ``submit``, ``map_items``, ``remote`` and ``Executor``, with submitit's names.

``import openpaisdk.functions as submitit`` is all that a script for submitit has to change. May import
``jobs`` and everything below it; ``binding`` stands on it. Nothing is imported here: each name below is
loaded when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.functions import helpers as helpers
    from openpaisdk.functions.debug_executor import DebugExecutor as DebugExecutor
    from openpaisdk.functions.debug_executor import DebugJob as DebugJob
    from openpaisdk.functions.executor import AutoExecutor as AutoExecutor
    from openpaisdk.functions.executor import AutoExecutor as LocalExecutor
    from openpaisdk.functions.executor import AutoExecutor as SlurmExecutor
    from openpaisdk.functions.executor import Executor as Executor
    from openpaisdk.functions.function_job import clean_up as clean_up
    from openpaisdk.functions.function_job import futures_of as futures_of
    from openpaisdk.functions.job_future import AnyJob as Job
    from openpaisdk.functions.job_future import AnyJob as LocalJob
    from openpaisdk.functions.job_future import AnyJob as SlurmJob
    from openpaisdk.functions.job_future import JobFuture as JobFuture
    from openpaisdk.functions.job_future import JobFutures as JobFutures
    from openpaisdk.functions.remote_function import map_items as map_items
    from openpaisdk.functions.remote_function import remote as remote
    from openpaisdk.functions.remote_function import submit as submit
    from openpaisdk.functions.task_errors import TaskError as TaskError
    from pairuntime.task.job_environment import JobEnvironment as JobEnvironment

_MODULES = {
    "AutoExecutor": "executor",
    "DebugExecutor": "debug_executor",
    "DebugJob": "debug_executor",
    "Executor": "executor",
    "AnyJob": "function_job",  # which can open jobs
    "JobFuture": "job_future",
    "JobFutures": "job_future",
    "TaskError": "task_errors",
    "clean_up": "function_job",
    "futures_of": "function_job",
    "map_items": "remote_function",
    "remote": "remote_function",
    "submit": "remote_function",
}

_OTHER_NAMES = {
    "Job": "AnyJob",
    "LocalExecutor": "AutoExecutor",
    "LocalJob": "AnyJob",
    "SlurmExecutor": "AutoExecutor",
    "SlurmJob": "AnyJob",
}
"""Names of submitit that mean the same here."""

__all__ = [
    "AutoExecutor",
    "DebugExecutor",
    "DebugJob",
    "Executor",
    "Job",
    "JobEnvironment",
    "JobFuture",
    "JobFutures",
    "LocalExecutor",
    "LocalJob",
    "SlurmExecutor",
    "SlurmJob",
    "TaskError",
    "clean_up",
    "futures_of",
    "helpers",
    "map_items",
    "remote",
    "submit",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "helpers":
        return import_module("openpaisdk.functions.helpers")
    if name == "JobEnvironment":
        return import_module("pairuntime.task.job_environment").JobEnvironment
    if name in _OTHER_NAMES:
        return __getattr__(_OTHER_NAMES[name])
    if name in _MODULES:
        value = getattr(import_module(f"openpaisdk.functions.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'openpaisdk.functions' has no attribute {name!r}")
