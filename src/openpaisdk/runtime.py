"""API for programs in a task: detect the environment, run code by environment, logging and metrics.

These names are importable in every task with Python 3.6 or newer, even if this package is not installed.
"""

from pairuntime.task.delayed_call import Checkpointable, DelayedSubmission
from pairuntime.task.saved_state import save_before_stop, saved_state
from pairuntime.user_api import BATCH, INTERACTIVE, LOCAL, Runtime, Where, capture_logging, log_metrics, where

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pairuntime.callbacks.keras_callback import KerasCallback as KerasCallback
    from pairuntime.callbacks.lightning_logger import LightningLogger as LightningLogger
    from pairuntime.callbacks.transformers_callback import TransformersCallback as TransformersCallback
else:

    def __getattr__(name):
        """Classes for training frameworks, which are imported with them."""
        if name.startswith("__"):  # each import of this module asks for some
            raise AttributeError(f"module 'openpaisdk.runtime' has no attribute {name!r}")
        from pairuntime import callbacks

        return callbacks.find_class(name)


# Without the classes for training frameworks, of which a program has one at most.
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
