"""Warnings for the program that uses the SDK, shown with its own line and not one of the SDK."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning for the first caller outside of the package, however deep the call is."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_own(str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _is_own(module: str) -> bool:
    # Context managers of the package are called by contextlib.
    return module.partition(".")[0] in (_PACKAGE, "contextlib")
