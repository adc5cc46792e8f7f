"""``pai sub``: submit a command as a job."""

from __future__ import annotations

import os

from openpaisdk.cli.parser import Parser, command_parser
from openpaisdk.cli.submission.command_job import CommandJob, submit_command_job
from openpaisdk.cli.submission.job_flags import add_job_options, given_options
from openpaisdk.config.clusters import ClusterRegistry
from openpaisdk.jobs.command import interpreter_of, shell_line
from openpaisdk.jobs.job_names import expand_name, generate_name
from openpaisdk.jobs.job_options import JobOptions
from openpaisdk.jobs.option_values import port_variable
from openpaisdk.output import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def sub(argv: list[str]) -> int:
    """``pai sub [options] [--] command ...``"""
    parser = command_parser(
        "sub",
        "pai sub --follow -- python train.py --epochs 3\n"
        "pai sub -j nightly_$ --gpu 1 'make data && python train.py'\n"
        "pai sub --array lr=0.1,0.01 --array seed=1-5 -- python train.py --lr {lr} --seed {seed}\n"
        "pai sub --array-file params.csv -- python train.py --lr {lr}\n"
        "pai sub --sample 20 --array 'lr=log(1e-5,1e-1)' --array 'layers=1..8' -- ./train.sh {lr} {layers}\n"
        "pai sub --array 100%8 -- sh -c 'python try.py --number $PAI_TASK_INDEX'",
        "Submits a job that runs the command, and prints its name. The command starts at the first\n"
        "argument that is not an option, or after --. One quoted argument is a shell line, which stops at\n"
        "the first command that fails (set -euo pipefail); several are run as they are.\n\n"
        "The files of the current folder are uploaded with the job (.paiignore, or else .gitignore,\n"
        "excludes files); to clusters of OpenPAI's own server only the files given by --sources are. On the\n"
        "embedded cluster the job uses your Python and your virtual environment.\n\n"
        "Defaults of options can be changed with pai set. pai submit takes the same options from a file.",
    )
    parser.usage = "pai sub [options] [--] command ..."
    add_job_options(parser)
    option_args, command = parser.split_command(argv)
    args = parser.parse(option_args)
    if argv[-len(command) - 1 : -len(command)] != ["--"]:  # nothing marks the start of the command
        _warn_misplaced_words(parser, option_args, command)
    _warn_file_as_command(command)

    for label in (request.partition("=")[0] for request in args.ports if "-" in request):
        print_notice(f"--ports {label}: the job reads ${port_variable(label)}.")
    line = shell_line(command)
    registry = ClusterRegistry.load()
    name = expand_name(args.job_name) if args.job_name else generate_name(line)
    options = JobOptions.read(name, [line], given_options(args))
    job = CommandJob(options, command, has_name=bool(args.job_name))
    return submit_command_job(job, args, registry)


def _warn_misplaced_words(parser: Parser, option_args: Sequence[str], command: Sequence[str]) -> None:
    """Warn about options of pai after the command, and about an optional value that is not joined to its
    option by an =: the command gets both, which is seldom intended."""
    if option_args[-1:] == ["--fetch"] and len(command) > 1:
        from shutil import which

        if which(command[1]) and not which(command[0]):
            print_notice(
                f"{command[0]} is taken as the command. A folder for --fetch is written as "
                f"--fetch={command[0]}, or with -- before the command."
            )
    known = parser.options.keys() - {"--help", "--output"}  # common options of scripts
    misplaced = next((w for w in command[1:] if w.startswith("--") and w.partition("=")[0] in known), "")
    if misplaced:
        print_notice(f"{misplaced} after the command is passed to the command; options of pai go before it.")


def _warn_file_as_command(command: Sequence[str]) -> None:
    """Warn about a script that the job's shell would not find, or may not execute."""
    file = command[0] if command else ""
    if (interpreter := interpreter_of(file)) and os.path.isfile(file):
        from shutil import which

        if not which(file):
            print_notice(f"{file} is a file of this folder and not a command: write {interpreter} {file}")
