"""The SDK: submit, watch and manage jobs on OpenPAI clusters.

Importing this package costs nothing: each name below is loaded when it is first used.
"""

from __future__ import annotations

from typing import Any

from openpaisdk._version import __version__

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'openpaisdk' has no attribute {name!r}")
