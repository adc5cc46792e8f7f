"""Names of ``submitit.helpers``."""

from openpaisdk.functions.job_future import as_completed
from pairuntime.task.command_function import CommandFunction
from pairuntime.task.delayed_call import Checkpointable, DelayedSubmission

__all__ = ["Checkpointable", "CommandFunction", "DelayedSubmission", "as_completed"]
