"""``pai exec``: run a command in a running task of a job."""

from __future__ import annotations

import os
import sys

from openpaisdk.cli.parser import Parser, add_task_options, command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.output import print_notice
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def exec_command(argv: list[str]) -> int:
    """``pai exec [options] job [-- command ...]``"""
    parser = command_parser(
        "exec",
        "pai exec train_k3v9xq -- nvidia-smi\npai exec -t train_k3v9xq\n"
        "pai exec -i train_k3v9xq -- tar -xf - < more.tar\n"
        "pai exec --role worker --index 2 train_k3v9xq -- cat /proc/meminfo",
        "The command runs beside the task: in its working folder, with its environment, account, limits and "
        "GPUs. It ends when the connection does. The exit status is that of the command; 255 if the "
        "connection was lost.",
        output=False,
    )
    parser.usage = "pai exec [options] job [options] [--] [command ...]"
    add_task_options(parser)
    parser.add_argument("-i", "--stdin", action="store_true", help="send your standard input to the command")
    parser.add_argument(
        "-t",
        "--tty",
        action="store_true",
        help="give the command a terminal, connected with yours; without a command, opens a shell",
    )
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    parser.add_argument("command", nargs="*", metavar="command", help="the command and its arguments")
    args, command = _parse(parser, argv)
    has_terminal = args.tty and os.isatty(0)
    reads_stdin = args.stdin or has_terminal
    if sys.platform == "win32" and (reads_stdin or args.tty):
        raise UsageError("pai exec has no -i and no -t on Windows.", hint="Use it in WSL.")
    if not command and not reads_stdin:
        raise UsageError(
            "pai exec -t opens a shell on your terminal, and there is none here.",
            hint=f"Send it commands with: pai exec -i {args.job} -- sh",
        )
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    session = cluster.open_session(args.job, args.user, role=args.role, index=args.index, terminal=args.tty)
    from openpaisdk.cli.interactive.session_streams import SessionStreams, window_size

    session.start(command, (os.environ.get("TERM") or "xterm", *window_size()) if args.tty else None)
    streams = SessionStreams(session, reads_stdin=reads_stdin, has_terminal=args.tty, is_raw=has_terminal)
    return streams.run()


def _parse(parser: Parser, argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Options may stand before and after the job; the command starts at the next argument, or after --."""
    options, job_and_command = parser.split_command(argv)
    more_options, command = parser.split_command(job_and_command[1:])
    args = parser.parse([*options, *more_options, *job_and_command[:1]])
    if not command and not args.tty:
        raise UsageError(
            "pai exec: the command is missing.",
            hint=f"Write it after --: pai exec {args.job} -- COMMAND. pai exec -t {args.job} opens a shell.",
        )
    return args, command
