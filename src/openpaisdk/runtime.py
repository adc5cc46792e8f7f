"""API for programs in a task: detect the environment, run code by environment, logging and metrics.

These names are importable in every task with Python 3.6 or newer, even if this package is not installed.
"""

from pairuntime.user_api import BATCH, INTERACTIVE, LOCAL, Runtime, Where, capture_logging, log_metrics, where

__all__ = [
    "BATCH",
    "INTERACTIVE",
    "LOCAL",
    "Runtime",
    "Where",
    "capture_logging",
    "log_metrics",
    "where",
]
