"""API for programs in a task: detect the environment, run code by environment, logging and metrics.

These names are importable in every task with Python 3.6 or newer, even if this package is not installed.
"""

from pairuntime.task.delayed_call import Checkpointable, DelayedSubmission
from pairuntime.task.saved_state import save_before_stop, saved_state
from pairuntime.user_api import BATCH, INTERACTIVE, LOCAL, Runtime, Where, capture_logging, log_metrics, where

__all__ = [
    "BATCH",
    "INTERACTIVE",
    "LOCAL",
    "Checkpointable",
    "DelayedSubmission",
    "Runtime",
    "Where",
    "capture_logging",
    "log_metrics",
    "save_before_stop",
    "saved_state",
    "where",
]
