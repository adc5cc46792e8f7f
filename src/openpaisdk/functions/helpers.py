"""Names of ``submitit.helpers``."""

from openpaisdk.functions.job_future import as_completed
from openpaisdk.functions.job_monitor import monitor_jobs
from pairuntime.task.command_function import CommandFailed, CommandFunction
from pairuntime.task.delayed_call import Checkpointable, DelayedSubmission, FunctionSequence
from pairuntime.task.job_environment import (
    TorchDistributedEnvironment,
    clean_env,
    environment_variables,
)

__all__ = [
    "Checkpointable",
    "CommandFailed",
    "CommandFunction",
    "DelayedSubmission",
    "FunctionSequence",
    "TorchDistributedEnvironment",
    "as_completed",
    "clean_env",
    "environment_variables",
    "monitor_jobs",
]
