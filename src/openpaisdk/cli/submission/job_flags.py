"""Flags of job options: added to a parser from the table in `jobs.job_options`, and read from its result."""

from __future__ import annotations

from openpaisdk.cli.parser import Parser, int_at_least
from openpaisdk.cli.submission.submission_steps import add_follow_options, add_strict_option
from openpaisdk.jobs.job_options import (
    ENVIRONMENT,
    FILES,
    JOB_OPTIONS,
    KEYWORDS,
    RESOURCES,
    SCHEDULING,
    JobOptions,
)
from openpaisdk.jobs.option_definition import COUNT, SWITCH
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from openpaisdk.jobs.option_definition import JobOption

_AS_IN_THE_JOB = "default: as in the job"


def add_flag(
    group: argparse._ActionsContainer,
    option: JobOption[Any],
    *,
    help: str = "",
    default_help: str | None = None,
) -> None:
    """Add the flag of an option, with another help or another default if they are given.

    Its value is None, or an empty list, if it is not given.
    """
    text = help or option.help
    if default := option.default_help if default_help is None else default_help:
        text += f" ({default})"
    if option.is_repeated:
        text += "; may be repeated"
    argument: dict[str, Any] = {"help": text, "dest": option.keyword, "default": None}
    if option.metavar:
        argument["metavar"] = option.metavar
    if option.choices:
        argument["choices"] = option.choices
    if option.is_repeated:
        argument.update(action="append", default=[])
    elif option.kind == SWITCH:
        argument["action"] = "store_true"
    elif option.kind == COUNT:
        argument["type"] = int_at_least(option.minimum)
    elif option.optional:
        argument.update(nargs="?", const=option.read(option.optional), type=option.check)
    group.add_argument(*option.flags, **argument)


def add_job_options(
    parser: Parser, default_name: str = "", *, opens_page: bool = False, of_copy: bool = False
) -> None:
    """Add the options of a job and of its submission. ``of_copy``: their defaults are a job's values."""
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for title in (RESOURCES, ENVIRONMENT, FILES, SCHEDULING):
        groups[title] = parser.add_argument_group(title)
    for option in JOB_OPTIONS:
        default_help = _AS_IN_THE_JOB if of_copy and option.default_help else None
        if option is JobOptions.name and default_name:
            default_help = f"default: {default_name}"
        add_flag(groups[option.group], option, default_help=default_help)
        if option is JobOptions.sources:
            text = "leave out the files of the job" if of_copy else "upload no files"
            groups[FILES].add_argument("--no-sources", action="store_true", help=text)
        elif option is JobOptions.virtual_cluster:
            add_strict_option(groups[SCHEDULING])
    add_follow_options(parser, opens_page=opens_page)


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The values that a command line gives, by the names of the options in Python."""
    given = {
        keyword: value
        for keyword in KEYWORDS
        if (value := getattr(args, keyword, None)) is not None and value != []
    }
    if getattr(args, "no_sources", False):
        if args.sources:
            raise UsageError("--sources and --no-sources contradict each other.")
        given["sources"] = []
    return given
