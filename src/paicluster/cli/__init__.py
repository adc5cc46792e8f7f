"""`paicluster`: the server and the administrator's commands. Each command is imported when used."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence

from paicluster.cli.parser import Parser
from paiprotocol._version import __version__
from paiprotocol.errors import PaiError
from paiprotocol.stdio import reopen_closed_stdio, silence_broken_pipe

# By command: its module, its functions for options and for running, and its summary.
_COMMANDS = {
    "init": ("init", "init_options", "init", "write the file that describes a new cluster"),
    "check-config": ("init", "check_options", "check", "report the errors in a cluster's file"),
    "serve": ("serve_options", "options", "", "run the cluster in the foreground"),
    "user": ("users", "group", "", "create, list, change and remove users"),
    "group": ("groups", "group", "", "groups of users and their rights"),
    "vc": ("virtual_clusters", "group", "", "virtual clusters, the quotas of a cluster"),
    "token": ("tokens", "group", "", "list and revoke tokens"),
    "backup": ("backup", "backup_options", "backup", "save a cluster to a file, even while it runs"),
    "restore": ("backup", "restore_options", "restore", "restore a saved cluster into a new home"),
    "check-store": ("check_store", "options", "check_store", "look for damage in a cluster's database"),
    "migrate-store": ("migrate_store", "options", "migrate_store", "move the database to PostgreSQL"),
    "restore-store": (
        "restore_store",
        "options",
        "restore_store",
        "return to a backup of a damaged database",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    reopen_closed_stdio()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["serve"]:
        # What the start creates lives as long as the server: to look for garbage in it only delays the start.
        gc.disable()
        from paicluster.server import shutdown_signals

        shutdown_signals.install()
    try:
        status = _parse_and_run(arguments)
        sys.stdout.flush()
    except PaiError as error:
        return _report(error.message, error.hint, error.exit_status)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return silence_broken_pipe()
    except OSError as error:
        silence_broken_pipe()
        return _report(
            f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}.", "", 1
        )
    return status


def _report(message: str, hint: str, status: int) -> int:
    print(f"paicluster: {message.removeprefix('paicluster: ')}", file=sys.stderr)
    if hint:
        print(hint, file=sys.stderr)
    return status


def _parse_and_run(argv: list[str]) -> int:
    parser = Parser(
        prog="paicluster",
        description="Run and manage a cluster that speaks OpenPAI's REST API.",
        epilog="example:\n  paicluster serve --home /var/lib/paicluster --host 127.0.0.1 --port 9186",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"paicluster {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, options, _, summary) in _COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if argv[:1] == [name]:
            declared = getattr(importlib.import_module(f"paicluster.cli.{module}"), options)
            (declared.options if options == "group" else declared)(command)
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    module, options, function, _ = _COMMANDS[arguments.command]
    if arguments.command == "serve":
        from paicluster.cli import serve_options

        # Checked before the server is imported, which takes a while.
        settings = serve_options.settings(arguments)
        from paicluster.server import serve

        return serve.run(settings)
    command_module = importlib.import_module(f"paicluster.cli.{module}")
    run = command_module.group.run if options == "group" else getattr(command_module, function)
    status: int = run(arguments)
    return status
