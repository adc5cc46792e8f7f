"""Options of ``%%pai``: those of ``pai sub`` that suit a cell, and the variables that travel."""

from __future__ import annotations

import argparse

from openpaisdk.cli.parser import Parser, command_parser
from openpaisdk.cli.submission.job_flags import add_job_options, given_options
from openpaisdk.jobs.job_options import KEYWORDS
from paiprotocol.errors import UsageError

_NOT_IN_A_CELL = (
    *(keyword for keyword, option in KEYWORDS.items() if not option.for_functions),
    *("strict", "preview", "fetch", "output"),
)
"""Options of ``sub`` that have no meaning for a cell, whose output and variables come back to it."""
_ALWAYS = ("follow", "wait", "no_browser")
"""Options of ``sub`` that change nothing: a cell is always followed."""


class CellOptions:
    """The job of a cell as its first line describes it. ``job`` has keywords of ``Job.one_liner``."""

    def __init__(self, args: argparse.Namespace):
        self.cluster_alias: str = args.cluster_alias
        self.name: str = args.job_name or ""
        self.inputs = _names(args.inputs, "--in")
        self.outputs = _names(args.outputs_of_cell, "--out")
        self.job = given_options(args)


def parse_cell_options(words: list[str]) -> CellOptions:
    """The options of a cell. ``SystemExit`` after ``--help`` has been printed."""
    parser = _parser()
    args = parser.parse(words)
    for action in parser._actions:
        if action.dest in _NOT_IN_A_CELL and getattr(args, action.dest) != action.default:
            raise parser.unknown(action.option_strings[-1])
    return CellOptions(args)


def _parser() -> Parser:
    parser = command_parser("sub", "%%pai --gpu 1 --in data,epochs --out model", "")
    parser.prog, parser.usage = "%%pai", "%%%%pai [options]"
    parser.description = (
        "Run this cell as a job. Its output appears here while it runs. The cell has the variables that --in "
        "names, and the notebook gets those that --out names. An interrupt stops the job."
    )
    variables = parser.add_argument_group("Variables")
    for option, dest, what in (
        ("--in", "inputs", "variables of the notebook that the cell uses"),
        ("--out", "outputs_of_cell", "variables of the cell that the notebook gets"),
    ):
        variables.add_argument(
            option,
            dest=dest,
            action="append",
            default=[],
            metavar="NAMES",
            help=f"{what}, separated by commas (default: none); may be repeated",
        )
    add_job_options(parser, "made from the word cell")
    for action in parser._actions:
        if action.dest in (*_NOT_IN_A_CELL, *_ALWAYS):
            action.help = argparse.SUPPRESS
    return parser


def _names(given: list[str], option: str) -> list[str]:
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if wrong := [name for name in names if not name.isidentifier()]:
        raise UsageError(f"{option} {wrong[0]}: this is not the name of a variable.")
    return list(dict.fromkeys(names))
