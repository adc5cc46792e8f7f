"""Warnings for the program that uses the SDK, shown with the line of it that called."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn_caller(message: str) -> None:
    """Issue a warning for the first caller outside of the package, however deep the call is."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_own(str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE
