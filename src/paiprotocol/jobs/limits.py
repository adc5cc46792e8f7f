"""Bounds of one job: of its document, and of the text that it expands to."""

from __future__ import annotations

from paiprotocol.errors import ProtocolError

MAX_DEPTH = 64
MAX_VALUES = 200_000
"""Values in one document; an alias counts as often as it is used."""
MAX_TASKS = 10_000
"""Tasks of one job."""
MAX_EXPANDED_CHARS = 4 << 20
"""Characters of a job with its aliases expanded, and of all its task scripts together.

A document has at most 1 MiB, but a reference, an alias or a plugin can repeat a large part of it thousands of
times: without this bound such a job fills the memory of the server.
"""


class ExpansionBudget:
    """Characters that the expansion of one job may still produce."""

    __slots__ = ("_left",)

    def __init__(self, chars: int = MAX_EXPANDED_CHARS):
        self._left = chars

    def spend(self, chars: int) -> None:
        """Raises ProtocolError when the job expands beyond the bound. Call it before building the text."""
        self._left -= chars
        if self._left < 0:
            raise ProtocolError(
                f"The commands of a job may have at most {MAX_EXPANDED_CHARS >> 20} MiB of text with "
                "parameters, secrets and plugins inserted; these have more.",
                hint="Put large values into a file: in the sources of the job, or in the storage.",
            )
