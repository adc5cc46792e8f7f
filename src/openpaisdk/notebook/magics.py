"""Magics of ``%load_ext openpaisdk``: ``%pai COMMAND`` and ``%%pai [options]``."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics, line_cell_magic, magics_class

from openpaisdk.notebook.cell_error import CellError
from paiprotocol.errors import PaiError, UsageError


@magics_class
class PaiMagics(Magics):
    """Commands and jobs of a notebook."""

    @line_cell_magic
    def pai(self, line: str, cell: str | None = None) -> None:
        """``%pai COMMAND``: a command of pai. ``%%pai [options]``: this cell as a job (``--help``)."""
        try:
            words = _split(line)
            if cell is None:
                from openpaisdk.notebook.command_cell import run_command

                run_command(words)
            else:
                self._run_cell(words, cell)
        except CellError:
            raise
        except PaiError as error:
            raise CellError.of(error) from None

    def _run_cell(self, words: list[str], cell: str) -> None:
        from openpaisdk.notebook.cell_job import run_cell_as_job
        from openpaisdk.notebook.cell_options import parse_cell_options

        try:
            options = parse_cell_options(words)
        except SystemExit:  # argparse has printed the help
            return
        shell: Any = self.shell
        shell.push(run_cell_as_job(cell, options, shell.user_ns))


def _split(line: str) -> list[str]:
    from shlex import split

    try:
        return split(line)
    except ValueError as error:
        raise UsageError(f"This line cannot be split into words: {error}.") from None
