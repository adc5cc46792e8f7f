"""Debug mode: ``pai --debug``, the variable PAI_DEBUG, or a file ``.openpai/debug_enable``."""

from __future__ import annotations

import os


def enable_debug() -> None:
    """From now on print every request, and the traceback of a failure."""
    os.environ["PAI_DEBUG"] = "1"


def print_traceback() -> None:
    """Print the traceback of the exception being handled, if debug mode is on."""
    if os.environ.get("PAI_DEBUG") or os.path.exists(os.path.join(".openpai", "debug_enable")):
        import traceback

        traceback.print_exc()
