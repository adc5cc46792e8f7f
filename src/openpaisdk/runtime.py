"""For programs that run in a task: where they are, what to do when, their log and their figures.

The same names are importable in every task with Python 3.6 or newer, also where this package is not
installed there.
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
