"""``pai sub``: a command becomes a job."""

from __future__ import annotations

import os

from openpaisdk.cli.parser import Parser, command_parser, whole_number
from openpaisdk.cli.submission import add_submit_options, preview, submit_and_follow
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
from openpaisdk.connect import open_cluster, open_entry
from openpaisdk.errors import PaiError, UsageError
from openpaisdk.jobs.command import shell_line
from openpaisdk.jobs.command_job import (
    ELSEWHERE,
    HERE,
    HOST_IMAGE,
    JobOptions,
    ResourceOptions,
    callers_environment,
    one_liner,
)
from openpaisdk.jobs.job_names import expand_name, generate_name
from openpaisdk.jobs.option_values import array_size, dependency, memory_mb, port_counts, seconds
from openpaisdk.output import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from openpaisdk.client import ClusterClient
    from openpaisdk.config.defaults import Defaults
    from openpaisdk.jobs.pre_commands import PreCommands
    from openpaisdk.jobs.sources import SourceArchive

HOLD = "1h"


def sub(argv: list[str]) -> int:
    """``pai sub [options] [--] command ...``"""
    parser = command_parser(
        "sub",
        "pai sub --follow -- python train.py --epochs 3\n"
        "pai sub -j nightly_$ --gpu 1 'make data && python train.py'\n"
        "pai sub --array 100%8 -- sh -c 'python try.py --number $PAI_TASK_INDEX'",
        "A job is made from the command, and handed in. The command begins at the first word that is no\n"
        "option, with or without --; all that follows belongs to it. The files of the current folder\n"
        "travel along (.paiignore, or else .gitignore, says what stays behind); to clusters of OpenPAI's\n"
        "own server only what --sources names does. On the cluster of this machine the job finds your\n"
        "Python and your virtual environment.",
    )
    parser.usage = "pai sub [options] [--] command ..."
    _options(parser)
    options, words = parser.split_command(argv)
    for word in options:
        if word.partition("=")[0] == "--memory":
            raise UsageError("pai sub has no option --memory.", hint="Write --mem 4g, or --memoryMB 4096.")
    args = parser.parse(options)
    if len(options) + len(words) == len(argv):  # no -- says where the command begins
        _tell_strays(parser, words)

    line = shell_line(words)
    book = ClusterRegistry.load()
    entry = book.resolve(args.cluster_alias)
    defaults = book.defaults
    name = expand_name(args.job_name) if args.job_name else generate_name(line)
    wishes = _wishes(args, entry, defaults)
    around = _around(args, defaults)
    resources = _resources(args, entry, defaults)
    image = _image(args.image, entry, defaults)
    sources = _sources(args, entry, defaults, words)
    carrier = None
    if not entry.is_ours and (sources or wishes.outputs):
        from openpaisdk.jobs.pre_commands import PreCommands
        from openpaisdk.jobs.storage_upload import StorageUploader

        carrier = StorageUploader(open_entry(entry), wishes.workspace)
        around = around or PreCommands()

    def build(called: str) -> dict[str, object]:
        if carrier is not None and around is not None:
            around.transfer_commands = carrier.job_commands(
                called, sources=sources is not None, outputs=wishes.outputs
            )
        return one_liner(
            called,
            line,
            image=image,
            resources=resources,
            virtual_cluster=args.virtual_cluster or defaults.text("virtual-cluster"),
            environment=callers_environment() if entry.is_embedded else None,
            sources={"sha256": sources.sha256, "size": sources.size} if sources and not carrier else None,
            around=around,
            wishes=wishes,
        )

    job = build(name)
    if args.preview:
        return preview(job, args.output)
    cluster = open_cluster(args.cluster_alias, book=book, tell=print_notice)
    if carrier is not None:
        carrier.upload(name, sources)
    elif sources:
        _send(cluster, sources)

    def rename() -> str:
        again = generate_name(line)
        if carrier is not None:
            carrier.upload(again, sources)
        job.update(build(again))  # the name is also part of where its files go
        return again

    status = submit_and_follow(cluster, job, args, None if args.job_name else rename)
    watched = args.follow or args.wait or args.fetch is not None
    named = args.gpu or args.cpu or args.mem or args.memoryMB
    if named and entry.is_ours and not watched:
        from openpaisdk.cli.pending_reason import exceeds_capacity

        if why := exceeds_capacity(cluster, resources, 1 if wishes.is_array else wishes.instances):
            print_notice(why)
    return status


def _tell_strays(parser: Parser, words: Sequence[str]) -> None:
    """An option of ours behind the command goes to the command, which is seldom what was meant."""
    ours = parser.options.keys() - {"--help", "--output"}  # which many a script has, too
    stray = next((w for w in words[1:] if w.startswith("--") and w.partition("=")[0] in ours), "")
    if stray:
        print_notice(f"{stray} after the command belongs to it; put it before the command to give it to pai.")


def _options(parser: Parser) -> None:
    add_submit_options(parser)
    add = parser.add_argument
    add("-j", "--job-name", default="", metavar="NAME", help="its name; $ becomes a unique suffix")
    add("-i", "--image", default="", help="the container image to run in")
    add("--cpu", type=whole_number(1), metavar="N", help="cores of each task")
    add("--gpu", type=whole_number(0), metavar="N", help="GPUs of each task")
    add("--memoryMB", type=whole_number(1), metavar="N", help="memory of each task, in MB")
    add("--mem", metavar="SIZE", help="memory of each task, like 4g")
    _many(parser, "--ports", metavar="LABEL=N", help="N ports, assigned by the cluster; may be repeated")
    _many(
        parser,
        "--sources",
        "--src",
        metavar="PATH",
        help="only this file or folder travels; may be repeated",
    )
    add("--no-sources", action="store_true", help="no files travel")
    add("-w", "--workspace", default="", metavar="PATH", help="folder on the storage for the job's files")
    _many(
        parser,
        "--env",
        metavar="NAME[=VALUE]",
        help="a variable of the job; without a value, the one it has here; may be repeated",
    )
    _many(
        parser,
        "--secret",
        metavar="NAME[=VALUE]",
        help="the same, but never shown: masked in logs and in the job's configuration",
    )
    _many(
        parser,
        "--pip-installs",
        "--pip",
        metavar="PACKAGE",
        help="a package to install first; may be repeated",
    )
    add("--pip-path", default="", metavar="PIP", help="the pip to install with")
    add("--python", default="", metavar="PYTHON", help="the Python of the image to use")
    add("--instances", type=whole_number(1), default=1, metavar="N", help="so many tasks, started together")
    add("--array", default="", metavar="N[%M]", help="N tasks, each for itself, at most M at a time")
    add("--timeout", default="", metavar="TIME", help="end a task after this time, like 90s, 2h, 1d")
    add("--retry", type=whole_number(0), default=0, metavar="N", help="try again so often if it fails")
    add("--priority", choices=("crit", "prod", "test", "oppo"), default="", help="who comes first (test)")
    _many(
        parser,
        "--after",
        metavar="JOB[:end]",
        help="start when this job has succeeded, with :end when it is over; may be repeated",
    )
    add(
        "--capture-logging",
        action="store_true",
        help="Python's logging with level and time, for pai logs --level",
    )
    _many(parser, "--outputs", metavar="PATH", help="keep this file or folder when it ends; may be repeated")
    add(
        "--debug-hold",
        nargs="?",
        const=HOLD,
        default="",
        metavar="TIME",
        help=f"keep a task that failed for a while, to look at it ({HOLD}; or --debug-hold=TIME)",
    )


def _many(parser: Parser, *names: str, metavar: str, help: str) -> None:
    parser.add_argument(*names, action="append", default=[], metavar=metavar, help=help)


def _wishes(args: argparse.Namespace, entry: ClusterEntry, defaults: Defaults) -> JobOptions:
    if args.array and args.instances > 1:
        raise UsageError("--array and --instances contradict each other: either says how many tasks.")
    count, limit = array_size(args.array) if args.array else (args.instances, 0)
    wishes = JobOptions(
        instances=count,
        is_array=bool(args.array),
        array_limit=limit,
        retries=args.retry,
        priority=args.priority,
        after=[dependency(text) for text in args.after],
        time_limit=seconds(args.timeout) if args.timeout else 0,
        outputs=args.outputs,
        workspace=args.workspace or entry.text("workspace") or defaults.text("workspace"),
    )
    if not entry.is_ours:
        for given, option in ((wishes.after, "--after"), (limit, "--array N%M"), (args.timeout, "--timeout")):
            if given:
                raise UsageError(
                    f"The cluster {entry.alias} does not know {option}.",
                    hint="Clusters of OpenPAI's own server have no such thing; leave the option out.",
                )
    return wishes


def _around(args: argparse.Namespace, defaults: Defaults) -> PreCommands | None:
    """Loaded only when something surrounds the command."""
    packages = [*args.pip_installs, *(p for p in defaults.many("pip-installs") if p not in args.pip_installs)]
    branch = defaults.text("container-sdk-branch")
    held = args.debug_hold or args.capture_logging
    if not (args.env or args.secret or packages or branch or args.python or held):
        return None
    from openpaisdk.jobs.pre_commands import PreCommands, parse_variables, value_from_environment

    environment = parse_variables(args.env, "--env", value_from_environment("--env"))
    secrets = parse_variables(args.secret, "--secret", value_from_environment("--secret"))
    if both := [name for name in environment if name in secrets]:
        raise UsageError(f"{both[0]} is given with --env and with --secret: which is it?")
    return PreCommands(
        environment=environment,
        secrets=secrets,
        python=args.python,
        pip_installs=packages,
        pip_path=args.pip_path,
        sdk_branch=branch,
        debug_hold=seconds(args.debug_hold) if args.debug_hold else 0,
        capture_logging=args.capture_logging,
    )


def _image(given: str, entry: ClusterEntry, defaults: Defaults) -> str:
    image = given or defaults.text("image")
    if not image and not entry.is_embedded and open_entry(entry).info().get("containers") is not False:
        raise UsageError(
            f"The cluster {entry.alias} runs jobs in containers: name an image with -i.",
            hint="Set one for good with: pai set -g image=<image>",
        )
    return image or HOST_IMAGE


def _resources(args: argparse.Namespace, entry: ClusterEntry, defaults: Defaults) -> ResourceOptions:
    base = HERE if entry.is_embedded else ELSEWHERE

    def pick(given: int | None, key: str, fallback: int) -> int:
        if given is not None:
            return given
        kept = defaults.number(key)
        return fallback if kept is None else kept

    if args.mem:
        memory = memory_mb(args.mem)
    elif args.memoryMB is None and defaults.text("mem"):
        memory = memory_mb(defaults.text("mem"))
    else:
        memory = pick(args.memoryMB, "memoryMB", base.memory_mb)
    return ResourceOptions(
        pick(args.cpu, "cpu", base.cpu), pick(args.gpu, "gpu", base.gpu), memory, port_counts(args.ports)
    )


def _sources(
    args: argparse.Namespace, entry: ClusterEntry, defaults: Defaults, words: Sequence[str]
) -> SourceArchive | None:
    if args.no_sources:
        if args.sources:
            raise UsageError("--sources and --no-sources contradict each other.")
        return None
    only = [*args.sources, *(s for s in defaults.many("sources") if s not in args.sources)]
    if not only and not entry.is_ours:
        print_notice(f"No files travel to {entry.alias}; use --sources . to send those of this folder.")
        return None
    from openpaisdk.jobs.sources import collect

    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise PaiError(
            "The folder you are in no longer exists.", hint="Go to another one, or use --no-sources."
        ) from None
    if not only and _is_everything(here):
        # Nobody means to send all they have; what the command names they do mean.
        only = _named_here(words)
        what = f"only {', '.join(only)} travels, which the command names" if only else "none of it travels"
        is_home = os.path.realpath(here) == os.path.realpath(os.path.expanduser("~"))
        place = "This is your home folder" if is_home else "Your home folder lies in this one"
        print_notice(f"{place}: {what}. --sources names others; --sources . sends all of it.")
        if not only:
            return None
    return collect(here, only)


def _is_everything(folder: str) -> bool:
    """A home folder, or one that holds it."""
    home = os.path.realpath(os.path.expanduser("~"))
    folder = os.path.realpath(folder)
    return home == folder or home.startswith(folder.rstrip(os.sep) + os.sep)


def _named_here(words: Sequence[str]) -> list[str]:
    pieces = words[0].split() if len(words) == 1 else words
    plain = [p.strip("'\";&|()") for p in pieces if not p.startswith(("-", "/", "~", "."))]
    return list(dict.fromkeys(p for p in plain if p and ".." not in p and os.path.exists(p)))


def _send(cluster: ClusterClient, sources: SourceArchive) -> None:
    """The cluster may have them from last time; then nothing travels."""
    from openpaisdk.jobs.sources import megabytes, send
    from openpaisdk.output.progress import Progress

    with Progress("Sending", sources.size) as progress:

        def tell(size: int) -> None:
            progress.total = size
            if size > 4 << 20:
                print_notice(f"Sending {megabytes(size)} of {sources.count} files.")

        sources.on_progress = progress.advance
        send(cluster, sources, tell)
    if sources.ignored:
        few = ", ".join(sources.ignored[:3]) + (", ..." if len(sources.ignored) > 3 else "")
        print_notice(f"Left behind, as the ignore file says: {few}")
