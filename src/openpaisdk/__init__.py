"""The SDK: submit, watch and manage jobs on OpenPAI clusters.

Importing this package costs nothing: each name below is loaded when it is first used.
"""

from __future__ import annotations

from openpaisdk._version import __version__

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the 5 ms that importing typing costs
if TYPE_CHECKING:
    from typing import Any

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'openpaisdk' has no attribute {name!r}")
