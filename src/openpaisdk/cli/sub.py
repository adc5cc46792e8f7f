"""``pai sub``: submit a command as a job."""

from __future__ import annotations

import os

from openpaisdk.cli.command_job import CommandJob, submit_command_job
from openpaisdk.cli.parser import Parser, command_parser, int_at_least
from openpaisdk.cli.submission import add_submit_options
from openpaisdk.config.clusters import ClusterRegistry
from openpaisdk.errors import UsageError
from openpaisdk.jobs.command import interpreter_of, shell_line
from openpaisdk.jobs.command_job import CLUSTER_RESOURCES, EMBEDDED_RESOURCES, JobOptions
from openpaisdk.jobs.command_submission import check_contradictions
from openpaisdk.jobs.job_names import expand_name, generate_name
from openpaisdk.jobs.option_values import (
    MAX_PORTS,
    PRIORITIES,
    dependency,
    port_counts,
    port_variable,
    seconds,
)
from openpaisdk.output import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from openpaisdk.jobs.task_array import TaskArray

DEFAULT_HOLD = "1h"


def sub(argv: list[str]) -> int:
    """``pai sub [options] [--] command ...``"""
    parser = command_parser(
        "sub",
        "pai sub --follow -- python train.py --epochs 3\n"
        "pai sub -j nightly_$ --gpu 1 'make data && python train.py'\n"
        "pai sub --array lr=0.1,0.01 --array seed=1-5 -- python train.py --lr {lr} --seed {seed}\n"
        "pai sub --array 100%8 -- sh -c 'python try.py --number $PAI_TASK_INDEX'",
        "Submits a job that runs the command, and prints its name. The command starts at the first\n"
        "argument that is not an option, or after --. One quoted argument is a shell line; several are run\n"
        "as they are.\n\n"
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
    options = job_options(args, name, line)
    job = CommandJob(options, given_sources(args), command, has_name=bool(args.job_name))
    return submit_command_job(job, args, registry)


def _warn_misplaced_words(parser: Parser, option_args: Sequence[str], command: Sequence[str]) -> None:
    """An option of pai after the command is passed to the command, and so is an optional value that is not
    joined to its option by an =. Both are seldom intended."""
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
    """A script of the folder that the job's shell would not find, or may not execute."""
    file = command[0] if command else ""
    if (interpreter := interpreter_of(file)) and os.path.isfile(file):
        from shutil import which

        if not which(file):
            print_notice(f"{file} is a file of this folder and not a command: write {interpreter} {file}")


def add_job_options(
    parser: Parser, default_name: str = "made from the command", *, opens_page: bool = False
) -> None:
    """Add the options of a command job."""
    parser.add_argument(
        "-j",
        "--job-name",
        default="",
        metavar="NAME",
        help=f"the job's name; $ becomes a unique suffix (default: {default_name})",
    )
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="TAG",
        help="a tag of the job, for pai list-jobs --tag (default: none); may be repeated",
    )
    _add_resources(parser.add_argument_group("Resources"))
    _add_environment(parser.add_argument_group("Environment"))
    _add_files(parser.add_argument_group("Files"))
    _add_scheduling(add_submit_options(parser, default_vc="that of pai set, or", opens_page=opens_page))


def _add_resources(resources: argparse._ArgumentGroup) -> None:
    here, there = EMBEDDED_RESOURCES, CLUSTER_RESOURCES
    add = resources.add_argument
    add(
        "--cpu",
        type=int_at_least(1),
        metavar="N",
        help=f"cores per task (default: {here.cpu} on the embedded cluster, else {there.cpu})",
    )
    add("--gpu", type=int_at_least(0), metavar="N", help=f"GPUs per task (default: {there.gpu})")
    add(
        "--memoryMB",
        type=int_at_least(1),
        metavar="N",
        help=f"memory per task in MB (default: {here.memory_mb} on the embedded cluster, else "
        f"{there.memory_mb})",
    )
    add("--mem", metavar="SIZE", help="memory per task with a unit, like 4g (default: see --memoryMB)")
    add(
        "--instances",
        type=int_at_least(1),
        default=1,
        metavar="N",
        help="tasks, started together (default: 1, at most 10000)",
    )
    _add_repeated(
        resources,
        "--array",
        metavar="N[%M]|NAME=VALUES[%M]",
        help="N independent tasks, at most M at a time, or one for each value, like lr=0.1,0.01 or n=1-10; "
        "the value is {NAME} in the command and $NAME in the environment, and several options run all "
        "combinations (default: no array)",
    )
    _add_repeated(
        resources,
        "--ports",
        metavar="LABEL=N",
        help=f"N ports, assigned by the cluster, at most {MAX_PORTS} per label; - in a label becomes _ "
        "(default: none)",
    )


def _add_environment(environment: argparse._ArgumentGroup) -> None:
    add = environment.add_argument
    add(
        "-i",
        "--image",
        default="",
        help="the container image (default: none where jobs run on the machine itself, "
        "as on the embedded cluster; elsewhere it is required)",
    )
    _add_repeated(
        environment,
        "--env",
        metavar="NAME[=VALUE]",
        help="an environment variable of the job (default value: the one it has here)",
    )
    _add_repeated(
        environment,
        "--secret",
        metavar="NAME[=VALUE]",
        help="the same as --env, but masked in logs and in the job's configuration",
    )
    _add_repeated(
        environment,
        "--pip-installs",
        "--pip",
        metavar="PACKAGE",
        help="a Python package to install before the command (default: none)",
    )
    add("--pip-path", default="", metavar="PIP", help="the pip to install with (default: python -m pip)")
    add("--python", default="", metavar="PYTHON", help="the Python of the image to use (default: python)")
    add(
        "--capture-logging",
        action="store_true",
        help="add level and time to the records of Python's logging, for pai logs --level",
    )


def _add_files(files: argparse._ArgumentGroup) -> None:
    add = files.add_argument
    _add_repeated(
        files,
        "--sources",
        "--src",
        metavar="PATH",
        help="upload only this file or folder, as large as the cluster takes (default: the current folder, "
        "up to 100 MB)",
    )
    add("--no-sources", action="store_true", help="upload no files")
    add(
        "-w",
        "--workspace",
        default="",
        metavar="PATH",
        help="the folder on the storage for the job's files, relative to /<user> (default: the workspace of "
        "pai set, else of pai select-storage)",
    )
    _add_repeated(
        files,
        "--outputs",
        metavar="PATH",
        help="an output file or folder, stored when the job ends (default: $PAI_OUTPUT_DIR only)",
    )


def _add_scheduling(scheduling: argparse._ArgumentGroup) -> None:
    add = scheduling.add_argument
    add(
        "--priority",
        choices=PRIORITIES,
        default="",
        help="the priority class, highest first; oppo may be preempted (default: test)",
    )
    add(
        "--timeout",
        default="",
        metavar="TIME",
        help="stop a task after this time, like 90s, 2h (default: never)",
    )
    add(
        "--retry",
        type=int_at_least(0),
        default=0,
        metavar="N",
        help="retries of a failed job (default: 0; failures of the cluster itself are retried anyway)",
    )
    _add_repeated(
        scheduling,
        "--after",
        metavar="JOB[:end]",
        help="start after this job has succeeded, with :end after it has finished (default: at once)",
    )
    add(
        "--debug-hold",
        nargs="?",
        const=seconds(DEFAULT_HOLD),
        default=0,
        type=seconds,
        metavar="TIME",
        help=f"keep a failed task for inspection, for TIME or {DEFAULT_HOLD} (default: off)",
    )


def _add_repeated(group: argparse._ArgumentGroup, *names: str, metavar: str, help: str) -> None:
    group.add_argument(*names, action="append", default=[], metavar=metavar, help=f"{help}; may be repeated")


def given_sources(args: argparse.Namespace) -> list[str] | None:
    """The files to upload: None for the whole folder, empty for no files."""
    if args.no_sources and args.sources:
        raise UsageError("--sources and --no-sources contradict each other.")
    return [] if args.no_sources else args.sources or None


def job_options(args: argparse.Namespace, name: str, line: str) -> JobOptions:
    """The options of `add_job_options` as the user gave them."""
    env, secrets = _variables(args)
    options = JobOptions(
        name,
        [line],
        image=args.image,
        cpu=args.cpu,
        gpu=args.gpu,
        memory_mb=args.memoryMB,
        mem=args.mem or "",
        ports=port_counts(args.ports),
        instances=args.instances,
        array=_array(args.array),
        retries=args.retry,
        priority=args.priority,
        after=[dependency(text) for text in args.after],
        time_limit_s=seconds(args.timeout) if args.timeout else 0,
        virtual_cluster=args.virtual_cluster,
        outputs=args.outputs,
        workspace=args.workspace,
        tags=args.tag,
        env=env,
        secrets=secrets,
        python=args.python,
        pip_installs=args.pip_installs,
        pip_path=args.pip_path,
        debug_hold_s=args.debug_hold,
        capture_logging=args.capture_logging,
    )
    check_contradictions(options)
    return options


def _array(texts: Sequence[str]) -> TaskArray | None:
    if not texts:
        return None
    from openpaisdk.jobs.task_array import read_arrays

    return read_arrays(texts)


def _variables(args: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """The values of ``--env`` and of ``--secret``."""
    if not (args.env or args.secret):
        return {}, {}
    from openpaisdk.jobs.pre_commands import parse_variables

    return parse_variables(args.env, args.secret)
