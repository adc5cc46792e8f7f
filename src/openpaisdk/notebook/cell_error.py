"""Error of a magic, shown in the cell as a sentence instead of a traceback of our own code."""

from __future__ import annotations

from paiprotocol.errors import PaiError


class CellError(PaiError):
    """A cell that failed: it ends with these sentences, and a notebook that is run as a whole stops here."""

    code = "CellError"

    @classmethod
    def of(cls, error: PaiError) -> CellError:
        return cls(error.message, hint=error.hint)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows."""
        return _sentences(self.message, self.hint)


class CellInterrupt(KeyboardInterrupt):
    """The interrupt of a cell, with what became of its job or command."""

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message

    def _render_traceback_(self) -> list[str]:
        return _sentences(self.message, "")


def _sentences(message: str, hint: str) -> list[str]:
    from openpaisdk.output.untrusted_text import visible

    return [visible(line) for line in (f"pai: {message}", *([f"     {hint}"] if hint else []))]
