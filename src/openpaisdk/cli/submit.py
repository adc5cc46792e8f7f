"""``pai sub`` and ``pai submit``: jobs go in."""

from __future__ import annotations

import os
import sys

from openpaisdk.cli.parser import Parser, command_parser, whole_number
from openpaisdk.config.clusters import ClusterBook, ClusterEntry
from openpaisdk.errors import PaiError, UsageError
from openpaisdk.jobs.build import (
    ELSEWHERE,
    HERE,
    HOST_IMAGE,
    Resources,
    callers_environment,
    memory_mb,
    one_liner,
    port_counts,
)
from openpaisdk.jobs.command import shell_line
from openpaisdk.jobs.names import filled_in, made_up
from openpaisdk.jobs.submission import hand_in, without_secrets
from openpaisdk.jobs.target import open_cluster, open_entry
from openpaisdk.output import say, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from openpaisdk.client import Cluster
    from openpaisdk.config.defaults import Defaults
    from openpaisdk.jobs.sources import Sources


def sub(argv: list[str]) -> int:
    """``pai sub [options] [--] command ...``"""
    parser = command_parser(
        "sub",
        "pai sub --follow -- python train.py --epochs 3\n"
        "pai sub -j nightly_$ --gpu 1 'make data && python train.py'",
        "The command begins at the first word that is no option, with or without --; all that follows\n"
        "belongs to it. On the cluster of this machine the files of the current folder travel along\n"
        "(.paiignore, or else .gitignore, says what stays behind), and the job finds your Python and\n"
        "your virtual environment.",
    )
    parser.usage = "pai sub [options] [--] command ..."
    _job_options(parser)
    parser.add_argument("-j", "--job-name", default="", help="its name; $ becomes a unique suffix")
    parser.add_argument("-i", "--image", default="", help="the container image to run in")
    parser.add_argument("--cpu", type=whole_number(1), metavar="N", help="cores")
    parser.add_argument("--gpu", type=whole_number(0), metavar="N", help="GPUs")
    parser.add_argument("--memoryMB", type=whole_number(1), metavar="N", help="memory, in MB")
    parser.add_argument("--mem", metavar="SIZE", help="memory, like 4g")
    parser.add_argument(
        "--ports", action="append", default=[], metavar="LABEL=N", help="N ports; may be repeated"
    )
    parser.add_argument(
        "--sources",
        "--src",
        action="append",
        default=[],
        metavar="PATH",
        help="only this file or folder travels; may be repeated",
    )
    parser.add_argument("--no-sources", action="store_true", help="no files travel")
    options, words = parser.split_command(argv)
    args = parser.parse(options)

    line = shell_line(words)
    book = ClusterBook.load()
    entry = book.choose(args.cluster_alias)
    name = filled_in(args.job_name) if args.job_name else made_up(line)
    image = _image(args.image, entry, book.defaults)
    resources = _resources(args, entry, book.defaults)
    sources = _sources(args, entry, book.defaults)
    job = one_liner(
        name,
        line,
        image=image,
        resources=resources,
        virtual_cluster=args.virtual_cluster or book.defaults.text("virtual-cluster"),
        environment=callers_environment() if entry.is_embedded else None,
        sources={"sha256": sources.sha256, "size": sources.size} if sources else None,
    )
    if args.preview:
        return _preview(job, args.output)
    cluster = open_cluster(args.cluster_alias, book=book, tell=say)
    if sources:
        _send(cluster, sources)
    rename = (lambda: made_up(line)) if not args.job_name else None
    return _hand_in(cluster, job, args, rename)


def submit(argv: list[str]) -> int:
    """``pai submit [options] file``"""
    parser = command_parser(
        "submit",
        "pai submit --follow job.yaml\n"
        "pai submit -u name=again_$ -u taskRoles:worker:commands:0='python train.py' job.yaml\n"
        "pai submit -u jobName=again_$ -u taskRoles:0:gpuNumber=2 old.json",
        "The file follows OpenPAI's job protocol, version 2 (YAML or JSON) or version 1 (JSON); - reads\n"
        "it from the standard input. It goes to the cluster in the version it is in; where the cluster\n"
        "takes no version 1 jobs any more, it is converted, and you are told.",
    )
    _job_options(parser)
    parser.add_argument(
        "-u",
        "--update",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the job first; : goes deeper, into keys and list indexes, as in "
        "defaults:virtualCluster=test; the value takes the type its key has; may be repeated",
    )
    parser.add_argument("config", metavar="FILE", help="the job file")
    args = parser.parse(argv)
    from openpaisdk.jobs.jobfile import read_job_file

    job = read_job_file(args.config, args.update, virtual_cluster=args.virtual_cluster, tell=say)
    if args.preview:
        return _preview(job, args.output)
    return _hand_in(open_cluster(args.cluster_alias, tell=say), job, args, None)


def _job_options(parser: Parser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="print its log until it is over")
    parser.add_argument("--wait", action="store_true", help="wait until it is over")
    parser.add_argument(
        "--vc", "--virtual-cluster", dest="virtual_cluster", default="", help="the virtual cluster"
    )
    parser.add_argument("--preview", action="store_true", help="print what would be sent, and send nothing")


def _image(given: str, entry: ClusterEntry, defaults: Defaults) -> str:
    image = given or defaults.text("image")
    if not image and not entry.is_embedded and open_entry(entry).info().get("containers") is not False:
        raise UsageError(
            f"The cluster {entry.alias} runs jobs in containers: name an image with -i.",
            hint="Set one for good with: pai set -g image=<image>",
        )
    return image or HOST_IMAGE


def _resources(args: argparse.Namespace, entry: ClusterEntry, defaults: Defaults) -> Resources:
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
    return Resources(
        pick(args.cpu, "cpu", base.cpu), pick(args.gpu, "gpu", base.gpu), memory, port_counts(args.ports)
    )


def _sources(args: argparse.Namespace, entry: ClusterEntry, defaults: Defaults) -> Sources | None:
    if args.no_sources:
        if args.sources:
            raise UsageError("--sources and --no-sources contradict each other.")
        return None
    only = [*args.sources, *(s for s in defaults.many("sources") if s not in args.sources)]
    if not only and not entry.is_embedded:
        return None
    from openpaisdk.jobs.sources import collect

    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise PaiError(
            "The folder you are in no longer exists.", hint="Go to another one, or use --no-sources."
        ) from None
    return collect(here, only)


def _send(cluster: Cluster, sources: Sources) -> None:
    from openpaisdk.jobs.sources import megabytes, send

    if sources.size > 4 << 20:
        say(f"Sending {sources.count} files, {megabytes(sources.size)}.")
    send(cluster, sources)
    if sources.left_out:
        few = ", ".join(sources.left_out[:3]) + (", ..." if len(sources.left_out) > 3 else "")
        say(f"Left behind, as the ignore file says: {few}")


def _preview(job: dict[str, object], form: str) -> int:
    """What would be sent, because it is what is sent; only secrets are masked."""
    shown = without_secrets(job)

    def people() -> str:
        from openpaisdk.protocol import dump_yaml

        return dump_yaml(shown).rstrip()

    # Version 1 is JSON, for people too.
    show(shown, "json" if form == "table" and "protocolVersion" not in job else form, people)
    if shown != job:
        say("The values of its secrets are not shown.")
    return 0


def _hand_in(
    cluster: Cluster, job: dict[str, object], args: argparse.Namespace, rename: Callable[[], str] | None
) -> int:
    name = hand_in(cluster, job, rename, say)
    result: dict[str, object] = {"jobName": name, "cluster": cluster.alias, "user": cluster.user}
    for_programs = args.output != "table"
    status = 0
    if args.follow or args.wait:
        from openpaisdk.cli.following import STATUSES, follow_to_end, say_which, tell_end, wait_to_end
        from openpaisdk.client.following import Wanted

        say(f"Job {name} on {cluster.alias}")
        wanted = Wanted(name)
        if args.follow:
            # The tasks of a job that was just taken do not exist yet, so the job itself is asked.
            roles = job.get("taskRoles")
            if isinstance(roles, dict) and roles:
                counts = [role.get("instances", 1) for role in roles.values() if isinstance(role, dict)]
                say_which(str(next(iter(roles))), sum(n for n in counts if isinstance(n, int)))
            status = follow_to_end(cluster, wanted, log=sys.stderr.buffer if for_programs else None)
        else:
            status = tell_end(cluster, wanted, wait_to_end(cluster, name))
        result["state"] = next((state for state, code in STATUSES.items() if code == status), "UNKNOWN")
        # A followed job's log has stdout for itself; for whoever only waits, the name is the result.
        if for_programs or not args.follow:
            show(result, args.output, lambda: name)
        return status
    show(result, args.output, lambda: name)
    if not for_programs:
        say(f"Submitted to {cluster.alias}. Follow it with: pai logs -f {name}")
    return status
