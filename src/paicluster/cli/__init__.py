"""`paicluster`: the server and the administrator's commands. Each command is loaded when used."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from openpaisdk._version import __version__
from openpaisdk.errors import PaiError


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="paicluster",
        description="Run and manage a cluster that speaks OpenPAI's REST API.",
        epilog="example:\n  paicluster serve --home /var/lib/paicluster --host 127.0.0.1 --port 9186",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"paicluster {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _serve_options(commands.add_parser("serve", help="run the cluster in the foreground"))
    saving = commands.add_parser("backup", help="save a cluster to a file, also while it runs")
    saving.add_argument("--with-files", action="store_true", help="also logs, working folders and sources")
    restoring = commands.add_parser("restore", help="put a saved cluster into a new home")
    for one in (saving, restoring):
        one.add_argument("--home", required=True, metavar="DIR", help="where the cluster keeps everything")
        one.add_argument("file", metavar="FILE", help="the backup")
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    try:
        if arguments.command == "serve":
            from paicluster.cli import serve

            return serve.run(arguments)
        from paicluster.cli import backup

        return backup.backup(arguments) if arguments.command == "backup" else backup.restore(arguments)
    except PaiError as error:
        print(f"paicluster: {error.message}", file=sys.stderr)
        if error.hint:
            print(error.hint, file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130


def _serve_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run the cluster in the foreground. Tasks go on when it stops, and are taken up again."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "The first start of a home makes the user 'admin'; its password comes from\n"
        "PAICLUSTER_ADMIN_PASSWORD, or is generated and shown once.\n\n"
        "example:\n  paicluster serve --home ./cluster --host 127.0.0.1 --port 9186"
    )
    add = parser.add_argument
    add("--home", required=True, metavar="DIR", help="where the cluster keeps everything")
    add("--host", default="127.0.0.1", metavar="H", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, default=9186, metavar="P", help="port; 0 takes a free one (default: 9186)")
    add("--tls-cert", metavar="FILE", help="certificate chain, PEM")
    add("--tls-key", metavar="FILE", help="private key, PEM")
    add(
        "--allow-plain-http",
        action="store_true",
        help="serve other machines without TLS: passwords and tokens travel in the clear",
    )
    add("--cpus", type=int, metavar="N", help="cores to hand out (default: what the machine has)")
    add("--memory-mb", type=int, metavar="N", help="memory to hand out (default: what the machine has)")
    add("--gpus", type=int, metavar="N", help="GPUs to hand out (default: what the machine has)")
    add(
        "--grace",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds between asking a task to stop and killing it",
    )
    add(
        "--virtual-cluster",
        action="append",
        default=[],
        metavar="NAME=GPUS,CORES,MEMORY_MB",
        help="a share of the cluster; may be given several times, 'default' has the rest",
    )
    add(
        "--keep-days",
        type=float,
        metavar="D",
        help="how long to keep finished jobs (30; on an embedded cluster for ever)",
    )
    add("--keep-jobs", type=int, default=100_000, metavar="N", help="keep at most so many of them (100000)")
    add("--keep-mb", type=int, metavar="MB", help="keep at most so much of their files (no limit)")
    add(
        "--limits",
        choices=("off", "enforce"),
        help="hold tasks to the cores and memory they asked for (default: enforce)",
    )
    add("--clean-after", type=float, default=60.0, metavar="S", help=argparse.SUPPRESS)
    add("--embedded", action="store_true", help=argparse.SUPPRESS)
    add("--idle-exit", type=float, metavar="S", help=argparse.SUPPRESS)
