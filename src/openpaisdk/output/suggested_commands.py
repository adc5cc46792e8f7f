"""Commands that notices and hints suggest, completed with options of the command that runs.

A command that was typed with ``-a team`` suggests commands with ``-a team``. Notices and hints are completed
where they are printed; the code that writes one does not know what was typed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Complete = Callable[[str], str]

_complete: list[Complete] = []


def set_context(complete: Complete | None) -> None:
    """Complete suggested commands with this function from now on; None: they stay as they are."""
    _complete[:] = [] if complete is None else [complete]


def in_context(text: str) -> str:
    """A text with its suggested commands as they are to be typed here."""
    return _complete[0](text) if _complete else text
